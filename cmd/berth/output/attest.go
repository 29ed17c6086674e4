package output

import "github.com/berth-eval/berth/core/record"

// Attest is what `berth attest` says.
type Attest struct {
	Environment string         `json:"environment"` // plugin
	Run         string         `json:"run"`         // folder of the run with the attacks
	Unguarded   string         `json:"unguarded"`   // folder of the run without guards
	Seconds     float64        `json:"seconds"`     // it took
	Attacks     []AttestAttack `json:"attacks"`
	Skipped     int            `json:"skipped,omitempty"` // attacks that cannot be made here
	// Differences are what is not as documented; none: everything is.
	Differences []string `json:"differences,omitempty"`
}

// AttestAttack is one attack.
type AttestAttack struct {
	Name      string       `json:"name"`
	IDs       []string     `json:"ids,omitempty"`     // lines of the catalogue of attacks
	Text      string       `json:"text"`              // what the agent does
	Control   bool         `json:"control,omitempty"` // it is not an attack: the solution does the work
	Unguarded bool         `json:"unguarded"`         // it succeeds if nothing guards
	Missing   string       `json:"missing,omitempty"` // program without which it cannot be made here
	Modes     []AttestMode `json:"modes,omitempty"`
}

// AttestMode is what came of an attack in one verification mode.
type AttestMode struct {
	Mode      string           `json:"mode"`
	Result    string           `json:"result"`   // held, detected, not held; passed for the control; unknown
	Expected  string           `json:"expected"` // what is documented
	Trial     string           `json:"trial"`
	Outcome   record.Outcome   `json:"outcome,omitempty"`
	Integrity record.Integrity `json:"integrity,omitempty"`
	Why       string           `json:"why,omitempty"`
}
