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

	Runs   bool   // the CLI of a Dialog is still running; only this turn is over
	Output string // the last lines of standard output that were not JSON
	Errors string // the end of standard error
}

// clean reports whether the CLI exited with code 0.
func (e Exit) clean() bool { return e.ExitCode == 0 && e.Signal == 0 }

// Ending is what the CLI reported about the end of a turn. With the zero value,
// a CLI that reported nothing, the exit code decides. A Driver prints it as
// JSON.
type Ending struct {
	Message string `json:"text"`    // the final message to the user; empty: the last message of the model
	Reason  string `json:"reason"`  // the CLI's own stop reason
	Stop    string `json:"stop"`    // of a Driver: why the model stopped, as in Message
	Limit   bool   `json:"limit"`   // the CLI's own limit of turns is reached
	Refused string `json:"refused"` // the model's refusal; empty: it did not refuse
	Wrong   string `json:"wrong"`   // the CLI's error message; empty: no error
	Status  *int   `json:"status"`  // HTTP status of the failed request, 0 if there was no response; nil: derive it from Wrong
	Open    string `json:"-"`       // set if the final event is missing; says what is missing: "it ended without a result"
}

// Judge returns the result of a turn: done, unless the exit or the ending say
// otherwise. It classifies a failure by the HTTP status or by known words as a
// refusal, as a failure of the model (an error that wraps agent.ErrModel), or
// as a crash of the CLI.
func (b *Transcript) Judge(x Exit, e Ending) (agent.Yield, error) {
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
		if e.Open == "" { // otherwise the final event is missing
			y.Claim = claim
		}
	}
	return y, nil
}

// Crashed returns the yield of a CLI that failed. why may be empty.
func (e Exit) Crashed(why string) agent.Yield {
	how := fmt.Sprintf("the CLI ended with exit code %d", e.ExitCode)
	switch {
	case e.Runs:
		return agent.Yield{End: agent.Crashed, Reason: why}
	case e.Signal != 0:
		how = fmt.Sprintf("the CLI was killed by signal %d (%s)", e.Signal, e.Signal)
	}
	parts := []string{how}
	for _, p := range []string{why, strings.TrimSpace(e.Errors), strings.TrimSpace(e.Output)} {
		if p != "" && len(parts) < 3 {
			parts = append(parts, p)
		}
	}
	return agent.Yield{End: agent.Crashed, ExitCode: e.ExitCode, Reason: strings.Join(parts, ": ")}
}

// cutOff returns the yield of a CLI whose access was cut before it was done.
// said is the last message of the model.
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

// Patterns in the error messages of CLIs about failed requests.
var (
	// An HTTP status.
	status = regexp.MustCompile(`(?i)(?:\b(?:status|error|code|http)\W{0,12}|^\W*)([45][0-9]{2})\b`)
	// An unknown model.
	connection = regexp.MustCompile(`(?i)\bconnection|\beconnre|\benotfound|\betimedout|timed? ?out|stream (closed|disconnected|ended)|fetch failed|network|socket|unreachable|overloaded|service.?unavailable|internal.?server.?error|rate.?limit|too many requests`)
	// A response without text or calls, for example from a model that refuses.
	emptyAnswer = regexp.MustCompile(`(?i)empty response`)
	// A model that refused to answer, and a refused connection.
	refusal        = regexp.MustCompile(`(?i)content.?filter|refus|safety|policy violation`)
	refusedByPeers = regexp.MustCompile(`(?i)econnrefused|connection ?(was )?refused|refused (the |to )?connect(ion)?`)
)

// refuses reports whether an error message means that the model refused.
func refuses(why string) bool {
	return refusal.MatchString(refusedByPeers.ReplaceAllString(why, ""))
}

func (e *Ending) blamesModel() bool {
	if e.Status != nil {
		return blames(*e.Status)
	}
	return BlamesModel(e.Wrong)
}

// BlamesModel reports whether an error message about a failed request points to
// the model or the connection to it, not to the request itself.
func BlamesModel(why string) bool {
	if m := status.FindStringSubmatch(why); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return blames(n)
		}
	}
	return connection.MatchString(why) && !emptyAnswer.MatchString(why)
}

// blames reports whether a response with this status is the provider's fault. 0
// means no response.
func blames(status int) bool {
	switch status {
	case 0, 401, 402, 403, 404, 408, 409, 429:
		return true
	default:
		return status >= 500
	}
}
