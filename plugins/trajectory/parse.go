package trajectory

// Violation is one way in which a document is not a valid trajectory.
type Violation struct {
	Path    string // such as "steps[2].tool_calls[0].arguments"; empty: the document
	Message string // what is wrong, no full stop
}

// Parse stub replaced below.
func Parse(data []byte) (*Trajectory, []Violation) { return nil, nil }
