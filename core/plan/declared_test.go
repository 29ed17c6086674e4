package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// Tasks with the same features and deliveries are one line. A cell that refuses them
// delivers nothing.
func TestWhatTasksDeclareIsListed(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"plain": "", "one": "skills\ngpu\nusers", "two": "skills\ngpu\nusers", "net": "network"})
	e := load(dir, "shell", "talker")
	p := &fakePlugins{needs: agent.Needs{Shell: true}, refuse: func(s environment.Spec) string {
		if s.Limits.GPUs > 0 {
			return "there are no GPUs"
		}
		return ""
	}}
	made := plans(t, e, p)
	got, err := json.Marshal(made.Declared)
	testlevel.Must(t, err)
	want := `[{"features":["network"],"tasks":["net"],"cells":[{"cells":["agent=shell","agent=talker"],"delivery":{"network":"delivered"}}]},` +
		`{"features":["gpu","users","skills"],"tasks":["one","two"],"cells":[]}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p = &fakePlugins{needs: agent.Needs{}}
	for _, d := range plans(t, e, p).Declared {
		if way := d.Cells[0].Delivery[task.FeatureSkills]; way != "unused" && len(d.Features) > 1 {
			t.Errorf("an agent without a model: %s", way)
		}
	}
}
