package rules

import (
	"regexp"
	"slices"
	"strings"
)

// MaxCandidate is how many characters of a user's reply count.
const MaxCandidate = 1200

// maxLines is how many lines a message to the agent has.
const maxLines = 3

// afterSentence is where a single line is split: white space after the end of a
// sentence.
var afterSentence = regexp.MustCompile(`([。！？.!?])\s+`)

// Message makes the message to the agent out of what the user replied. task is the
// public task, whose language fixed lines have.
func Message(candidate string, state State, task string) string {
	from := slices.DeleteFunc(lines(cut(strings.TrimSpace(candidate), MaxCandidate)), isCompletion)
	var kept, seen []string
	for _, line := range from {
		line = strings.TrimSpace(line)
		key := strings.ToLower(strings.Join(strings.Fields(line), " "))
		if line == "" || repeats(key, seen) {
			continue
		}
		kept, seen = append(kept, line), append(seen, key)
		if len(kept) == maxLines {
			break
		}
	}
	if len(kept) == 0 {
		english, chinese := fixed(state)
		if strings.ContainsFunc(task, func(r rune) bool { return r >= 0x3400 && r <= 0x9fff }) {
			return chinese
		}
		return english
	}
	return strings.Join(kept, "\n")
}

// lines returns the lines of a text without their bullets, or the sentences of a
// text of one line.
func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		if line = strings.Trim(line, " \t\r\n-•"); line != "" {
			out = append(out, line)
		}
	}
	if len(out) == 1 {
		out = strings.Split(afterSentence.ReplaceAllString(strings.TrimSpace(text), "$1\n"), "\n")
	}
	return out
}

// repeats reports whether a line equals, holds or is held by an earlier one.
func repeats(key string, seen []string) bool {
	for _, s := range seen {
		if strings.Contains(s, key) || strings.Contains(key, s) {
			return true
		}
	}
	return false
}

// fixed returns the message for a state when the user has said nothing that can be
// sent, in both languages of the tasks.
func fixed(s State) (english, chinese string) {
	switch s {
	case Incomplete:
		return "Please finish the remaining work, and tell me when it is finished.", "请把剩下的工作做完，做完后告诉我。"
	case CompleteButFailed:
		return "Please check the result against what I asked for, and correct what does not match.", "请对照我的要求检查结果，并改正不符合的地方。"
	default:
		return "Please go on with what I asked for.", "请继续完成我的要求。"
	}
}

// Nudge is the message to an agent that has stopped in the middle of its turn.
func Nudge(task string) string { return Message("", Incomplete, task) }
