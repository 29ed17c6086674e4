package view

import (
	"github.com/berth-eval/berth/core/record"
)

// integrityWords says what the integrity of a result means.
func integrityWords(i record.Integrity) string {
	switch i {
	case record.Checked:
		return "Nothing was found with which the agent could have influenced the result."
	case record.Exposed:
		return "The agent could have influenced the result. Nothing shows that it did."
	case record.Violated:
		return "The agent influenced what measured it, so the result cannot be trusted."
	case record.Unknown:
		return "The attempt was never verified."
	}
	return ""
}

// outcomeWords says what an outcome means.
func outcomeWords(o record.Outcome) string {
	return map[record.Outcome]string{
		record.Passed:             "The work passed its verification.",
		record.Failed:             "The work did not pass its verification.",
		record.Scored:             "The work was verified, and the task has no rule that says when it passes.",
		record.AgentError:         "The agent failed.",
		record.EnvironmentError:   "The environment failed, which says nothing about the agent.",
		record.VerifierError:      "The verification failed.",
		record.JudgeError:         "The model that judges gave no judgment.",
		record.ModelError:         "A model failed.",
		record.UserError:          "The simulated user failed.",
		record.RateLimited:        "The provider refused requests because there were too many.",
		record.PluginCrashed:      "A plugin ended unexpectedly.",
		record.ArtifactMissing:    "A file that the verification needs is missing.",
		record.IntegrityViolation: "The agent influenced what measured it.",
		record.TaskInvalid:        "The task cannot be run.",
		record.Preempted:          "The machine was taken away.",
		record.Cancelled:          "The attempt was cancelled.",
		record.NotRun:             "The trial has not been run.",
	}[o]
}
