// Package protocol parses the replies of a model that works at a terminal: its
// thoughts, its keystrokes, and whether it is done. It tolerates mistakes and
// reports them, so that the model can correct them.
//
// It must not know a terminal or a conversation. It only converts text to a
// Reply.
package protocol

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/number"
)

// Limits of a command's duration.
const (
	DefaultDuration = time.Second
	MaxDuration     = time.Minute
)

// Command is a batch of keystrokes, and how long to wait after it.
type Command struct {
	Keystrokes string
	Duration   time.Duration
}

// Reply is a parsed reply of the model.
type Reply struct {
	Analysis string
	Plan     string
	Commands []Command
	Complete bool
	// Warnings tell the model what was repaired.
	Warnings []string
}

// maxWarnings is the largest number of warnings about one reply.
const maxWarnings = 10

func (r *Reply) warn(format string, args ...any) {
	switch n := len(r.Warnings); {
	case n < maxWarnings:
		r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
	case n == maxWarnings:
		r.Warnings = append(r.Warnings, "there is more that was put right, and is not told")
	}
}

// said returns a reply without the thoughts that some models put at its
// beginning, because they may contain drafts of the reply.
func said(text string) string {
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "<think>") {
		if _, after, ok := strings.Cut(trimmed, "</think>"); ok {
			return after
		}
	}
	return text
}

// Parse reads a reply. An error says what is wrong with it, in a text for the
// model. Nothing of such a reply may be executed.
func Parse(text string) (Reply, error) {
	r, err := parseJSON(said(text))
	if err != nil {
		return Reply{}, err
	}
	r.joined()
	return r, nil
}

// joined warns about commands that run into the next one.
func (r *Reply) joined() {
	for i := 0; i+1 < len(r.Commands); i++ {
		k := r.Commands[i].Keystrokes
		if k == "" || strings.HasSuffix(k, "\n") || isKey(k) {
			continue
		}
		r.warn("the keystrokes of command %d do not end with a new line, so those of command %d were typed on the same line", i+1, i+2)
	}
}

// isKey reports whether keystrokes look like the name of a key, such as C-c or
// Up: one word that begins like one.
func isKey(k string) bool {
	if strings.ContainsAny(k, " \t") {
		return false
	}
	return len(k) == 1 || strings.HasPrefix(k, "C-") || strings.HasPrefix(k, "M-") || strings.HasPrefix(k, "^") || k[0] >= 'A' && k[0] <= 'Z'
}

// duration reads seconds as number or text.
func (r *Reply) duration(at int, text string) time.Duration {
	n, ok := number.Read(strings.TrimSuffix(strings.TrimSpace(text), "s"))
	switch {
	case !ok:
		r.warn("the duration of command %d, %q, is not a number of seconds: %g was taken", at, clip(text), DefaultDuration.Seconds())
		return DefaultDuration
	case n < 0:
		r.warn("the duration of command %d is negative: 0 was taken", at)
		return 0
	case n > MaxDuration.Seconds():
		r.warn("the duration of command %d is longer than %g seconds: %g was taken; send a command without keystrokes to keep waiting", at, MaxDuration.Seconds(), MaxDuration.Seconds())
		return MaxDuration
	}
	return time.Duration(n * float64(time.Second))
}

// yes reports whether a word means true.
func (r *Reply) yes(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1", "yes":
		return true
	case "", "false", "0", "no":
		return false
	}
	r.warn("task_complete is %q: only true and false are understood, and false was taken", clip(text))
	return false
}

func clip(s string) string {
	const limit = 40
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
