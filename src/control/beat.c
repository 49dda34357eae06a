/* SPDX-License-Identifier: BSD-3-Clause
 * The bytes of beats. */
#include <string.h>

#include "control/control.h"

static const char magic[8] = "LSBEAT3";

void control_session(const struct auth_token *token, uint64_t job, struct auth_session *out)
{
	static const char label[] = "lockstep beats 3";
	auth_session_begin(token, label, sizeof label, &job, sizeof job, out);
}

void control_beat_sign(const struct control *control, struct control_beat *beat)
{
	memcpy(beat->magic, magic, sizeof magic);
	memset(&beat->tag, 0, sizeof beat->tag);
	if (control->options.session)
		auth_sign(control->options.session, AUTH_CLIENT, beat->number, beat,
			  offsetof(struct control_beat, tag), &beat->tag);
}

static bool is_whole(const struct control *control, const struct control_beat *beat)
{
	const struct control_options *mine = &control->options;
	return memcmp(beat->magic, magic, sizeof magic) == 0 && beat->hosts == mine->hosts &&
	       beat->host < mine->hosts && beat->host != mine->host && beat->generation > 0 &&
	       beat->number > 0 && beat->leaves <= 1 && beat->late <= 1 && !beat->zero[0] &&
	       !beat->zero[1];
}

static bool is_signed(const struct control *control, const struct control_beat *beat)
{
	const struct auth_tag none = {{0}};
	if (!control->options.session)
		return memcmp(&beat->tag, &none, sizeof none) == 0;
	return auth_verify(control->options.session, AUTH_CLIENT, beat->number, beat,
			   offsetof(struct control_beat, tag), &beat->tag);
}

bool control_beat_parse(struct control *control, const void *bytes, size_t count,
			struct control_beat *out)
{
	struct control_dropped *dropped = &control->dropped;
	if (count != sizeof *out) {
		dropped->malformed++;
		return false;
	}
	memcpy(out, bytes, sizeof *out);
	if (!is_whole(control, out)) {
		dropped->malformed++;
		return false;
	}
	if (out->job != control->options.job) {
		dropped->foreign++;
		return false;
	}
	if (!is_signed(control, out)) {
		dropped->forged++;
		return false;
	}
	const struct control_peer *peer = &control->peers[out->host];
	if (out->generation < peer->generation ||
	    (out->generation == peer->generation && out->number <= peer->number)) {
		dropped->old++;
		return false;
	}
	return true;
}
