package rules

import (
	"slices"
	"strings"
)

// said are texts that say that the work is complete, wherever they stand. A
// Chinese text that denies it never has one of them in it.
var said = []string{"i have finished the request", "已完成", "已经完成", "任务完成"}

// sentences are the whole sentences that say it, in lower case.
var sentences = []string{
	"i finished the request", "i completed the request", "i have finished the request", "i have completed the request",
	"the request is finished", "the request is complete", "the task is complete", "task complete", "task is complete", "task is done",
	"done", "completed", "already complete", "appears complete", "all required files have been created", "已完成", "已经完成", "任务完成",
}

// ends are what a sentence has at its ends besides its words.
const ends = " .!?:;。！？"

// saysComplete reports whether a text says that the work is complete.
func saysComplete(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(text, s) }) ||
		slices.ContainsFunc(strings.FieldsFunc(text, endsSentence), isCompletion)
}

// endsSentence reports whether a sentence ends at a character, whatever follows.
func endsSentence(r rune) bool { return strings.ContainsRune(".!?。！？\n", r) }

// isCompletion reports whether a sentence as a whole says that the work is
// complete.
func isCompletion(sentence string) bool {
	return slices.Contains(sentences, strings.Trim(strings.ToLower(strings.Join(strings.Fields(sentence), " ")), ends))
}
