package harborjob

import (
	"cmp"

	"github.com/berth-eval/berth/core/record"
)

// thrown returns the type of the exception that stands for the end of an attempt
// in a job; empty: none. Harbor classifies trials by this name.
func thrown(o record.Outcome, end record.AgentEnd) string {
	switch o {
	case record.Passed, record.Failed, record.Scored, record.AgentError:
		switch end {
		case record.Timeout, record.EndedEarly:
			return "AgentTimeoutError"
		case record.Refused:
			return "AgentSafetyRefusalError"
		case record.Crashed, record.SandboxLost:
			return "NonZeroAgentExitCodeError"
		default:
		}
		if o == record.AgentError {
			return "NonZeroAgentExitCodeError"
		}
		return "" // Harbor has no exception for an agent that stops at its own limit
	case record.EnvironmentError, record.PluginCrashed, record.Preempted:
		return "RuntimeRequestError"
	case record.ModelError:
		return "ApiError"
	case record.RateLimited:
		return "ApiRateLimitError"
	case record.VerifierError, record.JudgeError, record.ArtifactMissing, record.IntegrityViolation:
		return "RewardFileNotFoundError"
	case record.Cancelled, record.NotRun:
		return "CancelledError"
	default:
		return "BerthError" // a name that Harbor does not know: not classified
	}
}

// cause is what a type of exception says about a trial of a job.
type cause struct {
	outcome record.Outcome  // empty: the reward is valid and decides
	end     record.AgentEnd // of the agent
	by      record.Boundary
}

// causes are the exceptions that Harbor 0.26 classifies, in error_policy.py.
var causes = func() map[string]cause {
	m := map[string]cause{
		"AgentTimeoutError":         {"", record.Timeout, record.ByAgent},
		"NonZeroAgentExitCodeError": {"", record.Crashed, record.ByAgent},
		"CancelledError":            {record.Cancelled, "", record.ByCore},
	}
	for _, group := range []struct {
		cause
		names []string
	}{
		{cause{record.EnvironmentError, "", record.ByEnvironment}, []string{
			"EnvironmentStartTimeoutError", "SandboxBuildFailedError", "AgentSetupTimeoutError", "HealthcheckError", "SandboxLikelyOutOfMemoryError",
			"MemoryLimitExceededError", "SSHAccessError", "GKEExecStreamClosedError", "GKEPodNotFoundError", "RuntimeRequestError", "AddTestsDirError",
			"DownloadVerifierDirError", "ServiceOperationsUnsupportedError", "VercelScopeError", "DspyImportError", "MissingExtraError", "RegradeError",
		}},
		{cause{record.RateLimited, "", record.ByModel}, []string{"ApiRateLimitError", "RateLimitError", "ApiOverloadedError", "ApiUsageLimitError"}},
		{cause{record.ModelError, "", record.ByModel}, []string{
			"ApiError", "ApiInternalServerError", "ApiConnectionClosedError", "ApiResponseStalledError", "UnknownApiError", "NetworkConnectionError",
			"ApiConnectionError", "InternalServerError", "ServiceUnavailableError", "APIConnectionError", "APIError", "Timeout", "BadRequestError",
			"UnprocessableEntityError", "UnsupportedParamsError", "UnsupportedModelParametersError", "APIResponseValidationError", "BudgetExceededError", "AgentAuthenticationError",
			"ModelNotFoundError", "ApiProviderResourceNotFoundError", "AuthenticationError", "PermissionDeniedError", "NotFoundError",
		}},
		{cause{"", record.Budget, record.ByAgent}, []string{
			"ContextWindowExceededError", "OutputTokenExceededError", "ContextLengthExceededError", "OutputLengthExceededError",
		}},
		{cause{"", record.Refused, record.ByAgent}, []string{"AgentSafetyRefusalError", "ContentPolicyViolationError"}},
		{cause{record.VerifierError, record.Yielded, record.ByVerifier}, []string{
			"VerifierTimeoutError", "RewardFileNotFoundError", "RewardFileEmptyError", "VerifierOutputParseError",
		}},
	} {
		for _, name := range group.names {
			m[name] = group.cause
		}
	}
	return m
}()

// outcome returns what a trial of a job means here. rewards are those that are
// numbers. A trial whose reward is not valid is not measured, as in Harbor.
func (t *trialResult) outcome(rewards map[string]float64) (o record.Outcome, end record.AgentEnd, by record.Boundary) {
	o, end, by = t.classified(rewards)
	if t.RewardValid != nil && !*t.RewardValid && o.MeasuredAfter(end) {
		o, by = record.EnvironmentError, cmp.Or(by, record.ByEnvironment)
	}
	return o, end, by
}

// classified returns what the rewards and the exception of a trial mean.
func (t *trialResult) classified(rewards map[string]float64) (o record.Outcome, end record.AgentEnd, by record.Boundary) {
	if t.began() {
		end = record.Yielded
	}
	e := t.thrown()
	if e != nil && len(rewards) > 0 {
		if t.RewardValid != nil && *t.RewardValid {
			return decided(rewards), cmp.Or(causes[e.Type].end, record.Yielded), ""
		}
	}
	if e == nil {
		switch {
		case len(rewards) == 0 && t.Finished == nil: // the job was stopped meanwhile
			return record.NotRun, "", record.ByCore
		case len(rewards) == 0:
			return record.VerifierError, end, record.ByVerifier
		}
		return decided(rewards), record.Yielded, ""
	}
	c, known := causes[e.Type]
	switch {
	case known && c.outcome != "":
		if c.end != "" {
			end = c.end
		}
		return c.outcome, end, c.by
	case known:
		end, by = c.end, c.by
	case end == "": // the agent had not begun
		return record.EnvironmentError, "", record.ByEnvironment
	default:
		by = record.ByAgent
	}
	if len(rewards) > 0 {
		return decided(rewards), end, ""
	}
	return record.AgentError, end, by
}

// thrown returns the exception of the trial, or the first one of its steps.
func (t *trialResult) thrown() *exception {
	if all := t.exceptions(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// exceptions returns the exception of the trial and those of its steps.
func (t *trialResult) exceptions() (all []*exception) {
	if t.Exception != nil {
		all = append(all, t.Exception)
	}
	for i := range t.Steps {
		if e := t.Steps[i].Exception; e != nil {
			all = append(all, e)
		}
	}
	return all
}

// maxTokens is more than the tokens of a trial, and so few that sums do not overflow.
const maxTokens = 1 << 40

// sum returns what the usage of a job adds up from. A cost below 0 is not known.
func sum(model string, input, cached, output int64, cost *float64) record.Usage {
	if cost != nil && *cost < 0 {
		cost = nil
	}
	tokens := func(n int64) int64 { return min(max(0, n), maxTokens) }
	return record.Usage{Role: "agent", Model: model, InputTokens: tokens(input), CachedTokens: tokens(cached), OutputTokens: tokens(output), CostUSD: cost}
}

// decisive is the reward that decides, as in tasks of Harbor's format.
const decisive = "reward"

// decided returns the outcome of rewards: there is one only if one of them is
// called reward.
func decided(rewards map[string]float64) record.Outcome {
	v, ok := rewards[decisive]
	switch {
	case !ok:
		return record.Scored
	case v >= 1:
		return record.Passed
	default:
		return record.Failed
	}
}
