package rules

import (
	"slices"
	"strings"
)

// said are texts that say that the work is complete, wherever they stand.
var said = []string{"I have finished the request", "已完成", "已经完成", "任务完成"}

// sentences are the whole sentences that say it, in lower case.
var sentences = []string{
	"i finished the request", "i completed the request", "i have finished the request", "i have completed the request",
	"the request is finished", "the request is complete", "the task is complete", "task complete", "task is complete", "task is done",
	"done", "completed", "already complete", "appears complete", "all required files have been created",
}

// ends are what a sentence has at its ends besides its words.
const ends = " \t\r\n.!?:;。！？"

// saysComplete reports whether a text says that the work is complete.
func saysComplete(text string) bool {
	if slices.ContainsFunc(said, func(s string) bool { return strings.Contains(text, s) }) {
		return true
	}
	return slices.ContainsFunc(split(text), isCompletion)
}

// isCompletion reports whether a sentence as a whole says that the work is
// complete.
func isCompletion(sentence string) bool {
	s := strings.ToLower(strings.Trim(sentence, ends))
	return slices.Contains(sentences, s) || slices.Contains(said, strings.Trim(sentence, ends))
}

// split splits a text into sentences: at line ends, and after an end mark that
// white space follows. A Chinese end mark needs no white space.
func split(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		begin := 0
		rs := []rune(line)
		for i, r := range rs {
			spaced := i+1 == len(rs) || strings.ContainsRune(" \t\r\n", rs[i+1])
			if strings.ContainsRune("。！？", r) || strings.ContainsRune(".!?", r) && spaced {
				out = append(out, string(rs[begin:i+1]))
				begin = i + 1
			}
		}
		out = append(out, string(rs[begin:]))
	}
	return out
}
