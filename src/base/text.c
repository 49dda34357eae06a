/* SPDX-License-Identifier: BSD-3-Clause
 * Characters that may be shown, text that grows, and the names of signals. */
#include "base/text.h"

#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int text_utf8_bytes(const char *at)
{
	const unsigned char *text = (const unsigned char *)at;
	unsigned char low = 0x80, high = 0xbf;
	int bytes;

	if (text[0] < 0x80)
		return 1;
	if (text[0] >= 0xc2 && text[0] <= 0xdf)
		bytes = 2;
	else if (text[0] >= 0xe0 && text[0] <= 0xef)
		bytes = 3;
	else if (text[0] >= 0xf0 && text[0] <= 0xf4)
		bytes = 4;
	else
		return 0;
	/* Overlong forms, surrogates, and what lies beyond U+10FFFF. */
	if (text[0] == 0xe0)
		low = 0xa0;
	else if (text[0] == 0xed)
		high = 0x9f;
	else if (text[0] == 0xf0)
		low = 0x90;
	else if (text[0] == 0xf4)
		high = 0x8f;
	if (text[1] < low || text[1] > high)
		return 0;
	for (int i = 2; i < bytes; i++)
		if (text[i] < 0x80 || text[i] > 0xbf)
			return 0;
	return bytes;
}

/* What is not shown for itself, in order. */
static const struct range {
	uint32_t first, last;
} hidden[] = {
	{0x00, 0x08},       {0x0b, 0x1f}, {0x7f, 0x9f}, /* control characters */
	{0xad, 0xad},                                   /* soft hyphen */
	{0x61c, 0x61c},                                 /* direction */
	{0x180e, 0x180e},                               /* no width */
	{0x200b, 0x200f},                               /* no width, direction */
	{0x2028, 0x202e},                               /* lines, direction */
	{0x2060, 0x206f},                               /* no width, direction */
	{0xfeff, 0xfeff},                               /* no width */
	{0xfff9, 0xfffb},                               /* annotations */
	{0xfffe, 0xffff},                               /* no characters, and forbidden in XML */
	{0xe0000, 0xe007f},                             /* tags */
};

uint32_t text_decode(const char *at, int bytes)
{
	const unsigned char *text = (const unsigned char *)at;
	uint32_t point = bytes == 1 ? text[0] : text[0] & (0x7fu >> bytes);
	for (int i = 1; i < bytes; i++)
		point = point << 6 | (text[i] & 0x3f);
	return point;
}

bool text_is_shown(const char *at, int *bytes)
{
	int length = text_utf8_bytes(at);
	*bytes = length > 0 ? length : 1;
	if (length == 0)
		return false;
	uint32_t point = text_decode(at, length);
	for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
		if (point <= hidden[i].last)
			return point < hidden[i].first;
	return true;
}

void text_clean(char *text, bool lines)
{
	char *to = text;
	int bytes;
	for (const char *from = text; *from; from += bytes) {
		bool shown =
			text_is_shown(from, &bytes) && (lines || (*from != '\n' && *from != '\t'));
		if (shown)
			memmove(to, from, (size_t)bytes);
		else
			*to = '?';
		to += shown ? bytes : 1;
	}
	*to = '\0';
}

void text_append(char *text, size_t bytes, size_t *used, const char *format, ...)
{
	va_list args;
	if (*used >= bytes)
		return;
	va_start(args, format);
	int more = vsnprintf(text + *used, bytes - *used, format, args);
	va_end(args);
	*used += more > 0 ? (size_t)more : 0;
}

const char *text_signal(int number)
{
	static const struct {
		int number;
		const char *name;
	} names[] = {
#define NAME(name) {SIG##name, #name}
		NAME(HUP),  NAME(INT),    NAME(QUIT), NAME(ILL),    NAME(TRAP), NAME(ABRT),
		NAME(BUS),  NAME(FPE),    NAME(KILL), NAME(USR1),   NAME(SEGV), NAME(USR2),
		NAME(PIPE), NAME(ALRM),   NAME(TERM), NAME(STKFLT), NAME(CHLD), NAME(CONT),
		NAME(STOP), NAME(TSTP),   NAME(TTIN), NAME(TTOU),   NAME(URG),  NAME(XCPU),
		NAME(XFSZ), NAME(VTALRM), NAME(PROF), NAME(WINCH),  NAME(POLL), NAME(PWR),
		NAME(SYS),
#undef NAME
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].number == number)
			return names[i].name;
	return NULL;
}
