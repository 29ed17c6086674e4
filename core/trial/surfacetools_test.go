package trial_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/surface"
)

// post is a program in the sandbox that calls a tool: it sends one request of the
// protocol, and prints the answer.
const post = `#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/$1
body='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"'$2'","arguments":'$3'}}'
printf 'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
cat <&3
`

// A program in the sandbox acts on the surface by its tools, and is recorded as
// other agents are. What it left behind gets no answer when the turn is over.
func TestAProgramInTheSandboxActsOnTheSurface(t *testing.T) {
	t.Parallel()
	a := &scripted{
		needs: agent.Needs{Shell: true},
		turn: func(ctx context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
			if len(a.setup.Servers) != 1 || a.setup.Servers[0].Name != "surface" || a.setup.Servers[0].Transport != "streamable-http" {
				return agent.Yield{}, fmt.Errorf("servers %+v", a.setup.Servers)
			}
			port := strings.TrimSuffix(strings.TrimPrefix(a.setup.Servers[0].URL, "http://127.0.0.1:"), "/mcp")
			return agent.Yield{End: agent.Done}, a.sh(ctx, "cat >/tmp/post <<'END'\n"+post+"END\nchmod +x /tmp/post\n"+
				"/tmp/post "+port+` add '{"n":3}' >/app/first; /tmp/post `+port+` observe '{}' >/app/seen
setsid sh -c 'while /tmp/post `+port+` add "{\"n\":100}" | grep "^HTTP/1.1 200" >>/app/late; do sleep 0.01; done; echo over >>/app/late' >/dev/null 2>&1 &
until [ -s /app/late ]; do sleep 0.01; done`)
		},
	}
	g := &game{}
	b := played(t, g, a, tests(`grep -q 'The number is 6' /app/first && grep -q 'The number is 6' /app/seen && ! grep -q reward /app/first /app/seen && until grep -q over /app/late; do sleep 0.01; done`))
	b.task.Mode = "live"
	b.task.Stages[0].Surface.Steps = 1
	r := b.run(t.Context(), t)
	if r.Outcome != record.Passed || r.AgentEnd != record.MaxSteps {
		t.Errorf("%s, %s, %+v", r.Outcome, r.AgentEnd, r.Error)
	}
	acted := 0
	for _, l := range surfaceLines(t, b.dir) {
		if l.Kind == surface.KindAct && l.Error == "" {
			acted++
		}
		if strings.Contains(string(l.Arguments), "100") && l.Error == "" {
			t.Errorf("an action after the last step: %+v", l)
		}
	}
	if acted != 1 {
		t.Errorf("%d actions in the record, want 1", acted)
	}
}
