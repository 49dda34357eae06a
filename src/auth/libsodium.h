/* SPDX-License-Identifier: BSD-3-Clause
 * libsodium, loaded if it is installed. Only its headers are needed to build. For files of this
 * room. */
#ifndef AUTH_LIBSODIUM_H
#define AUTH_LIBSODIUM_H

#include <sodium.h>

#define AUTH_LIBRARY_CALLS(CALL)        \
	CALL(crypto_generichash_init)   \
	CALL(crypto_generichash_update) \
	CALL(crypto_generichash_final)  \
	CALL(sodium_init)               \
	CALL(sodium_memcmp)             \
	CALL(sodium_memzero)

struct auth_library {
#define AUTH_LIBRARY_FIELD(name) __typeof__ (&(name))(name);
	AUTH_LIBRARY_CALLS(AUTH_LIBRARY_FIELD)
#undef AUTH_LIBRARY_FIELD
};

/* NULL, with a message, if libsodium cannot be loaded. Lockstep never unloads it. */
const struct auth_library *auth_library_get(void);

#endif
