package cli

import (
	"bytes"
	"testing"

	"github.com/berth-eval/berth/plugins/trajectory"
)

// Whatever a driver prints, its turn ends, and its steps are a valid trajectory.
func FuzzDriver(f *testing.F) {
	f.Add([]byte(`{"type":"message","text":"x","calls":[{"id":"1","name":"a","arguments":{}}]}` + "\n" + `{"type":"end"}`))
	s := Scaffold{Events: Driver}
	f.Fuzz(func(t *testing.T, out []byte) {
		var got steps
		y, err := Read(s, bytes.NewReader(out), Exit{}, &got)
		if err == nil && y.End == "" {
			t.Error("the turn has no end")
		}
		if len(got) == 0 {
			return
		}
		whole, _, err := trajectory.New(trajectory.Agent{Name: "a", Version: "1"}, "s", got)
		if err == nil {
			_, err = trajectory.Encode(whole)
		}
		if err != nil {
			t.Error(err)
		}
	})
}
