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
