/* SPDX-License-Identifier: BSD-3-Clause
 * The bytes of beats. */
#include <string.h>

#include "detector/detector_private.h"

static const char magic[8] = "LSBEAT3";

void detector_session(const struct auth_token *token, uint64_t job, struct auth_session *out)
{
	static const char label[] = "lockstep beats 3";
	auth_session_begin(token, label, sizeof label, &job, sizeof job, out);
}

void detector_beat_sign(const struct detector *detector, struct detector_beat *beat)
{
	memcpy(beat->magic, magic, sizeof magic);
	memset(&beat->tag, 0, sizeof beat->tag);
	if (detector->options.session)
		auth_sign(detector->options.session, AUTH_CLIENT, beat->number, beat,
			  offsetof(struct detector_beat, tag), &beat->tag);
}

static bool is_whole(const struct detector *detector, const struct detector_beat *beat)
{
	const struct detector_options *mine = &detector->options;
	return memcmp(beat->magic, magic, sizeof magic) == 0 && beat->hosts == mine->hosts &&
	       beat->host < mine->hosts && beat->host != mine->host && beat->generation > 0 &&
	       beat->number > 0 && beat->leaves <= 1 && beat->late <= 1 && !beat->zero[0] &&
	       !beat->zero[1];
}

static bool is_signed(const struct detector *detector, const struct detector_beat *beat)
{
	const struct auth_tag none = {{0}};
	if (!detector->options.session)
		return memcmp(&beat->tag, &none, sizeof none) == 0;
	return auth_verify(detector->options.session, AUTH_CLIENT, beat->number, beat,
			   offsetof(struct detector_beat, tag), &beat->tag);
}

bool detector_beat_parse(struct detector *detector, const void *bytes, size_t count,
			 struct detector_beat *out)
{
	struct detector_dropped *dropped = &detector->dropped;
	if (count != sizeof *out) {
		dropped->malformed++;
		return false;
	}
	memcpy(out, bytes, sizeof *out);
	if (!is_whole(detector, out)) {
		dropped->malformed++;
		return false;
	}
	if (out->job != detector->options.job) {
		dropped->foreign++;
		return false;
	}
	if (!is_signed(detector, out)) {
		dropped->forged++;
		return false;
	}
	const struct detector_peer *peer = &detector->peers[out->host];
	if (out->generation < peer->generation ||
	    (out->generation == peer->generation && out->number <= peer->number)) {
		dropped->old++;
		return false;
	}
	return true;
}
