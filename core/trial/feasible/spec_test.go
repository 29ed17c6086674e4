package feasible

import (
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// The public network that a task asks for leads to public hosts, by the core's
// proxy. That of the environment, which leads to this machine and its neighbours
// as well, is only the experiment's to give.
func TestAPublicNetworkIsPublicHosts(t *testing.T) {
	t.Parallel()
	public, none := task.Network{Mode: task.NetworkPublic}, task.Network{Mode: task.NetworkNone}
	list := task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example"}}
	for _, tt := range []struct {
		name          string
		asks          task.Network
		agent         *task.Network // instead
		granted       *task.Network
		want          task.NetworkMode
		reaches, open bool // any public host: the agent, the setup
	}{
		{"asked for", public, nil, nil, task.NetworkAllow, true, true},
		{"the environment's own", public, nil, &public, task.NetworkPublic, true, true},
		{"none", none, nil, nil, task.NetworkNone, false, false},
		{"not asked for", none, nil, &public, task.NetworkNone, false, false},
		{"taken away", public, nil, &none, task.NetworkNone, false, true},
		{"a list", list, nil, nil, task.NetworkAllow, false, false},
		{"not for the agent", public, &none, nil, task.NetworkAllow, false, true},
		{"for the agent alone", none, &public, nil, task.NetworkAllow, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tk := &task.Task{Environment: task.Environment{Network: tt.asks}, Stages: []task.Stage{{Name: "s"}}}
			tk.Stages[0].Agent.Network = tt.agent
			given, _, err := Network(tk, tt.granted)
			if err != nil || given.Mode != tt.want {
				t.Fatalf("got %q, %v; want %q", given.Mode, err, tt.want)
			}
			if got := Public(tk, &tk.Stages[0], given.Mode); got != tt.reaches {
				t.Errorf("the agent reaches any public host: %v", got)
			}
			if got := Reach(tk, &tk.Stages[0]).Setup.Any; got != tt.open {
				t.Errorf("the setup reaches any public host: %v", got)
			}
		})
	}
}
