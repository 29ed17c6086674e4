package screen

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// named are the keys by their names in tmux.
var named = map[string]string{
	"Enter": "\r", "Tab": "\t", "BTab": "\x1b[Z", "Escape": "\x1b", "Esc": "\x1b", "Space": " ", "BSpace": "\x7f", "Backspace": "\x7f",
	"Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C", "Left": "\x1b[D", "Home": "\x1b[H", "End": "\x1b[F",
	"PageUp": "\x1b[5~", "PgUp": "\x1b[5~", "PPage": "\x1b[5~", "PageDown": "\x1b[6~", "PgDn": "\x1b[6~", "NPage": "\x1b[6~",
	"Insert": "\x1b[2~", "IC": "\x1b[2~", "Delete": "\x1b[3~", "DC": "\x1b[3~",
	"F1": "\x1bOP", "F2": "\x1bOQ", "F3": "\x1bOR", "F4": "\x1bOS", "F5": "\x1b[15~", "F6": "\x1b[17~",
	"F7": "\x1b[18~", "F8": "\x1b[19~", "F9": "\x1b[20~", "F10": "\x1b[21~", "F11": "\x1b[23~", "F12": "\x1b[24~",
}

// cursor are the keys that have another form if an application asks for it.
var cursor = []string{"Up", "Down", "Right", "Left", "Home", "End"}

// Keys converts keystrokes to bytes. Text that is the name of one key (Enter,
// C-c, M-x, Up, F5) becomes that key; any other text is sent literally. A
// newline becomes the Enter key, or a line feed in a text of several lines,
// unless a program uses the whole screen. Shells accept both. But the text
// after a line that starts a program may arrive while the shell still edits.
// The kernel then does not convert Enter to a newline, and the program would
// wait for one forever.
func Keys(text string, m Modes) []byte {
	if b, ok := key(text, m); ok {
		return []byte(b)
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if i := strings.IndexByte(text, '\n'); i >= 0 && i < len(text)-1 && !m.Alternate {
		return []byte(text)
	}
	return []byte(strings.ReplaceAll(text, "\n", "\r"))
}

func key(name string, m Modes) (string, bool) {
	if b, ok := named[name]; ok {
		if m.CursorKeys {
			if slices.Contains(cursor, name) {
				return strings.Replace(b, "[", "O", 1), true
			}
		}
		return b, true
	}
	if rest, ok := strings.CutPrefix(name, "M-"); ok && rest != "" {
		if b, ok := key(rest, m); ok {
			return "\x1b" + b, true
		}
		if utf8.RuneCountInString(rest) == 1 {
			return "\x1b" + rest, true
		}
		return "", false
	}
	rest, ok := strings.CutPrefix(name, "C-")
	if !ok {
		rest, ok = strings.CutPrefix(name, "^")
	}
	if !ok {
		return "", false
	}
	if rest == "Space" {
		return "\x00", true
	}
	if len(rest) != 1 {
		return "", false
	}
	switch c := rest[0]; {
	case c >= 'a' && c <= 'z':
		return string(rune(c - 'a' + 1)), true
	case c >= '@' && c <= '_': // includes A to Z and [ \ ] ^ _
		return string(rune(c - '@')), true
	case c == '?':
		return "\x7f", true
	}
	return "", false
}
