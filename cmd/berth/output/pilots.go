package output

// PlanPilots is what the pilots of a run take at most.
type PlanPilots struct {
	Pilots int `json:"pilots"` // at the same time
	// Hours are those of all pilots together, if every attempt takes as long as it
	// may, with all retries. Absent: some attempt has no limit.
	Hours *float64 `json:"hours,omitempty"`
}

// Detached is what `berth run --detach` says.
type Detached struct {
	Dir string `json:"dir"` // of the run
	Job string `json:"job"` // that carries it
}
