package cli

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// Exit is how the CLI ended.
type Exit struct {
	sandbox.Result

	Runs   bool   // it has not ended: it is talked to, and only this turn is over
	Output string // the end of standard output, as far as it was no event
	Errors string // the end of standard error
}

// clean says that it ended as a program does that has nothing to complain of.
func (e Exit) clean() bool { return e.ExitCode == 0 && e.Signal == 0 }

// Ending is what a CLI said of the end of a turn. The zero value is a CLI that
// said nothing: then its exit code counts. A Driver prints it as JSON.
type Ending struct {
	Message string `json:"text"`    // its last words to the user; empty: the last that the model said
	Reason  string `json:"reason"`  // why it is done, in its own words
	Limit   bool   `json:"limit"`   // its own limit of turns is reached
	Refused string `json:"refused"` // how the model said that it would not; empty: it did not
	Wrong   string `json:"wrong"`   // what went wrong, in its own words; empty: nothing
	Status  *int   `json:"status"`  // of the request that went wrong, 0 if nobody answered; nil: Wrong tells it
	Open    string `json:"-"`       // what is missing, of a CLI that ended without an end: "it ended without a result"
}

// Judge says what came of a turn: done, unless the exit or the ending say
// otherwise. What went wrong is a refusal, the model's fault (an error that wraps
// agent.ErrModel) or the CLI's, by the status or by the words for it.
func (b *Book) Judge(x Exit, e Ending) (agent.Yield, error) {
	y := agent.Yield{End: agent.Done, Message: cmp.Or(e.Message, b.last), ExitCode: x.ExitCode, Reason: e.Reason}
	if b.spentNow != (agent.Claim{}) {
		y.Claim = &b.spentNow
	}
	if e.Refused == "" && refuses(e.Wrong) {
		e.Refused = e.Wrong
	}
	switch {
	case e.Limit:
		y.End, y.Reason = agent.MaxSteps, "max_turns is reached"
	case e.Refused != "":
		y.End, y.Reason = agent.Refused, e.Refused
	case e.Wrong != "" && e.blamesModel():
		return y, fmt.Errorf("%w: %s", agent.ErrModel, e.Wrong)
	case e.Wrong != "" || e.Open != "" || !x.clean():
		claim := y.Claim
		y = x.Crashed(cmp.Or(e.Wrong, e.Open))
		if e.Open == "" { // else it has not said all
			y.Claim = claim
		}
	}
	return y, nil
}

// Crashed is the yield of a CLI that did not end as it should. why may be
// empty.
func (e Exit) Crashed(why string) agent.Yield {
	how := fmt.Sprintf("it ended with exit code %d", e.ExitCode)
	switch {
	case e.Runs:
		return agent.Yield{End: agent.Crashed, Reason: why}
	case e.Signal != 0:
		how = fmt.Sprintf("it was ended by signal %d (%s)", e.Signal, e.Signal)
	}
	parts := []string{how}
	for _, p := range []string{why, strings.TrimSpace(e.Errors), strings.TrimSpace(e.Output)} {
		if p != "" && len(parts) < 3 {
			parts = append(parts, p)
		}
	}
	return agent.Yield{End: agent.Crashed, ExitCode: e.ExitCode, Reason: strings.Join(parts, ": ")}
}

// cutOff is the yield of a CLI whose access was ended before it was done; said
// is the last that the model said.
func (e Exit) cutOff(said string) agent.Yield {
	y := agent.Yield{End: agent.Crashed, ExitCode: -1, Reason: "it was cut off"}
	for _, last := range []string{said, strings.TrimSpace(e.Errors), strings.TrimSpace(e.Output)} {
		if last != "" {
			y.Reason += "; its last words: " + output.Middle(last, maxTail)
			break
		}
	}
	return y
}

// Words of CLIs for what happened to a request.
var (
	// A status of an answer.
	status = regexp.MustCompile(`(?i)(?:\b(?:status|error|code|http)\W{0,12}|^\W*)([45][0-9]{2})\b`)
	// A model that is not there.
	connection = regexp.MustCompile(`(?i)\bconnection|\beconnre|\benotfound|\betimedout|timed? ?out|stream (closed|disconnected|ended)|fetch failed|network|socket|unreachable|overloaded|service.?unavailable|internal.?server.?error|rate.?limit|too many requests`)
	// An answer without text or calls: of a model that refuses, for one.
	emptyAnswer = regexp.MustCompile(`(?i)empty response`)
	// A model that would not answer, and a connection that was refused.
	refusal        = regexp.MustCompile(`(?i)content.?filter|refus|safety|policy violation`)
	refusedByPeers = regexp.MustCompile(`(?i)econnrefused|connection ?(was )?refused|refused (the |to )?connect(ion)?`)
)

// refuses says whether what went wrong is that the model would not.
func refuses(why string) bool {
	return refusal.MatchString(refusedByPeers.ReplaceAllString(why, ""))
}

func (e *Ending) blamesModel() bool {
	if e.Status != nil {
		return blames(*e.Status)
	}
	return BlamesModel(e.Wrong)
}

// BlamesModel says whether what a CLI says of a failed request speaks of the
// model, or of the connection to it, and not of what it was asked.
func BlamesModel(why string) bool {
	if m := status.FindStringSubmatch(why); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return blames(n)
		}
	}
	return connection.MatchString(why) && !emptyAnswer.MatchString(why)
}

// blames says whether an answer of the provider with this status is its own
// fault. 0 is no answer at all.
func blames(status int) bool {
	switch status {
	case 0, 401, 402, 403, 404, 408, 409, 429:
		return true
	default:
		return status >= 500
	}
}
