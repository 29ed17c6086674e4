package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Violation is one way in which a document is not a valid trajectory.
type Violation struct {
	Path    string `json:"path"` // such as "steps[2].tool_calls[0].arguments"; empty: the document
	Message string `json:"message"`
}

// String returns the violation on one line.
func (v Violation) String() string {
	if v.Path == "" {
		return v.Message
	}
	return v.Path + ": " + v.Message
}

// Parse reads a trajectory. It is nil if and only if the document breaks a rule of the
// format.
func Parse(data []byte) (*Trajectory, []Violation) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, []Violation{{Message: "not JSON: " + err.Error()}}
	}
	t := &Trajectory{}
	d := json.NewDecoder(&compact)
	d.DisallowUnknownFields()
	if err := d.Decode(t); err != nil {
		one := Violation{Message: err.Error()}
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			one.Path, one.Message = wrong.Field, "must not be a JSON "+wrong.Value
		}
		return nil, []Violation{one}
	}
	v := &mender{}
	v.trajectory("", t)
	if len(v.found) > 0 {
		return nil, v.found
	}
	return t, nil
}

// Validate reports the rules of the format that the document breaks.
func Validate(data []byte) []Violation {
	_, vs := Parse(data)
	return vs
}
