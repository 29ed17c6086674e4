package rules

import (
	"regexp"
	"slices"
	"strings"
)

// Feedback is what a simulated user replies with.
type Feedback struct {
	Mode      string   `json:"mode"` // silent, nudge or instruction
	Tone      string   `json:"tone"` // neutral, firm or urgent
	Candidate string   `json:"candidate_feedback"`
	Points    []string `json:"public_feedback_points"`
}

// Bounds of feedback. What is beyond them is left out.
const (
	MaxCandidate = 1200 // characters
	MaxPoints    = 12
	MaxPoint     = 400 // characters
)

// maxLines is how many lines a message to the agent has.
const maxLines = 3

// afterSentence is where a single line is split: white space after the end of a
// sentence.
var afterSentence = regexp.MustCompile(`([。！？.!?])\s+`)

// Message makes the message to the agent out of the user's feedback. If composed
// is true, the user's points and a hint for each tag follow the feedback. task is
// the public task, whose language fixed lines have.
func Message(f Feedback, j Judgement, task string, composed bool) string {
	chinese := strings.ContainsFunc(task, func(r rune) bool { return r >= 0x3400 && r <= 0x9fff })
	from := slices.DeleteFunc(lines(cut(strings.TrimSpace(f.Candidate), MaxCandidate)), isCompletion)
	if composed {
		for _, p := range f.Points[:min(len(f.Points), MaxPoints)] {
			for line := range strings.Lines(cut(p, MaxPoint)) {
				from = append(from, strings.Trim(line, " \t\r\n-•"))
			}
		}
		for _, t := range j.Tags {
			from = append(from, hints[t].of(chinese))
		}
	}
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
		return fixed(j.State).of(chinese)
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

// fixedLine is a text in both languages of the tasks.
type fixedLine struct{ english, chinese string }

func (l fixedLine) of(chinese bool) string {
	if chinese {
		return l.chinese
	}
	return l.english
}

// fixed returns the message for a state when the user has said nothing that can
// be sent.
func fixed(s State) fixedLine {
	switch s {
	case Incomplete:
		return fixedLine{"Please finish the remaining work, and tell me when it is finished.", "请把剩下的工作做完，做完后告诉我。"}
	case CompleteButFailed:
		return fixedLine{"Please check the result against what I asked for, and correct what does not match.", "请对照我的要求检查结果，并改正不符合的地方。"}
	default:
		return fixedLine{"Please go on with what I asked for.", "请继续完成我的要求。"}
	}
}

// Nudge is the message to an agent that has stopped in the middle of its turn.
func Nudge(task string) string {
	return Message(Feedback{}, Judgement{State: Incomplete}, task, false)
}

// hints are what a user may say for a tag. They name nothing of the rubric.
var hints = map[Tag]fixedLine{
	"follow_public_task":                 {"Please keep to what I asked for.", "请按照我的要求来做。"},
	"keep_query_literal":                 {"Please search for exactly the words that I gave.", "请原样使用我给出的搜索词。"},
	"open_ranked_first_result":           {"Please open the result that is ranked first.", "请打开排在第一位的结果。"},
	"save_visible_evidence":              {"Please save what you see as evidence.", "请把看到的内容保存为证据。"},
	"save_supporting_screenshot":         {"Please save a screenshot that supports it.", "请保存能够证明它的截图。"},
	"use_only_visible_evidence":          {"Please use only what can be seen.", "请只使用可以看到的内容。"},
	"verify_evidence_matches_conclusion": {"Please check that the evidence fits the conclusion.", "请检查证据是否与结论一致。"},
	"check_correct_source_page":          {"Please check that it is the right page.", "请确认来源页面是正确的。"},
	"record_observable_conclusion":       {"Please write down the conclusion that can be seen.", "请写下可以观察到的结论。"},
	"do_not_claim_completion":            {"Please do not say that it is complete before it is.", "在真正完成之前，请不要说已经做完。"},
	"credential_hygiene":                 {"Please do not write passwords or keys into files.", "请不要把密码或密钥写进文件。"},
}
