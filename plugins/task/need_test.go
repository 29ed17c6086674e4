package task

import (
	"strings"
	"testing"
)

func TestNeeds(t *testing.T) {
	t.Parallel()
	tk := valid()
	tk.Environment.Compose = "environment/compose.yaml"
	tk.Environment.OS = "windows"
	tk.Environment.Limits = Limits{GPUs: 1, TPU: &TPU{Type: "v4", Topology: "2x2"}}
	tk.Stages[1].Mode = ModeImage
	var got []string
	for _, n := range tk.Needs() {
		got = append(got, string(n.Feature)+":"+n.Stage)
		if n.Detail == "" {
			t.Errorf("%s says nothing", n.Feature)
		}
	}
	want := "compose: sidecars: windows: gpu: tpu: users: network: healthcheck: stages: interaction: mcp: skills: separate:one surface:one prior:one hooks:one artifacts:one image:two"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}
