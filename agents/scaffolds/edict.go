package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/berth-eval/berth/agents/scaffolds/internal/streamjson"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// edictFiles has the driver, the program that changes the board, and the texts.
//
//go:embed edict
var edictFiles embed.FS

// edictRoles are the roles. taizi is the first and has the last word.
var edictRoles = []string{"taizi", "zhongshu", "menxia", "shangshu", "hubu", "libu", "bingbu", "xingbu", "gongbu", "libu_hr"}

// edictTimes are the times of the chain, in seconds.
var edictTimes = chainTimes{Poll: 3, Call: 45, Last: 120, Quiet: 30}

type chainTimes struct {
	Poll  float64 `json:"poll"`  // between two looks at the board
	Call  float64 `json:"call"`  // that a call has at least
	Last  float64 `json:"last"`  // that are kept for the last word
	Quiet float64 `json:"quiet"` // without a change of the board, after which the chain ends
}

// Edict is a chain of OpenClaw roles around a board.
type Edict struct {
	cli.Settings

	Roles map[string]string `berth:"roles" doc:"Instructions of roles in place of Berth's own, by the name of the role. For a folder with a file for each role: { for f in glob(\"roles/*.md\") : trimsuffix(basename(f), \".md\") => file(f) }."`
}

// Validate implements config.Validator.
func (c *Edict) Validate() []config.Problem {
	ps := c.Settings.Validate()
	for _, role := range slices.Sorted(maps.Keys(c.Roles)) {
		at := config.Path(fmt.Sprintf("roles[%q]", role))
		switch {
		case !slices.Contains(edictRoles, role):
			ps = append(ps, config.Problem{Path: at, Summary: "no such role", Detail: fmt.Sprintf("Got %q. There are %s.", role, strings.Join(edictRoles, ", "))})
		case strings.TrimSpace(c.Roles[role]) == "":
			ps = append(ps, config.Problem{Path: at, Summary: "a role without instructions", Detail: fmt.Sprintf("The text of %s is empty. Leave it out to use Berth's own.", role)})
		}
	}
	return ps
}

// edict returns the plugin. No registry has EDICT: the bundle is OpenClaw's.
func edict() plugins.Plugin {
	return plugins.Agent(plugins.Info{
		Name: "edict", Version: version, Env: []string{bundle.EnvDir},
		Doc: "EDICT, a chain of OpenClaw roles around a board, inside the sandbox: Berth's own driver, with the bundle of openclaw.",
	}, Edict{}, cli.Of(func(c Edict) (cli.Scaffold, cli.Settings) { return c.scaffold(), c.Settings }))
}

func (c *Edict) scaffold() cli.Scaffold {
	s := openClaw()
	s.Name, s.Bundle = "edict", s.Name
	s.Logs = []string{"openclaw/state/agents", "edict"}
	s.Start = c.start
	s.Events = func(b *cli.Transcript) cli.Events {
		return &edictEvents{openClawEvents: openClawEvents{piEvents{b, cli.Ending{Open: midway}}}}
	}
	return s
}

// chain are the settings of the driver.
type chain struct {
	chainTimes

	Program []string          `json:"program"` // runs a role; the role, the session and options follow
	Args    []string          `json:"args"`    // further options
	Session string            `json:"session"`
	Turn    int               `json:"turn"`
	Fresh   bool              `json:"fresh"` // this is the first turn of the session
	Message string            `json:"message"`
	Time    float64           `json:"time"`   // of the turn, in seconds; 0: not known
	Folder  string            `json:"folder"` // for the messages to roles
	Board   string            `json:"board"`  // file
	Roles   map[string]string `json:"roles"`
	Rules   string            `json:"rules"` // what all roles are told
	Word    string            `json:"word"`  // asks for the last word
}

func (c *Edict) start(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/edict"
	start := withOpenClaw(r, edictRoles)
	roles := map[string]string{}
	for _, role := range edictRoles {
		roles[role] = strings.TrimSpace(cmp.Or(c.Roles[role], edictText(role+".md")))
	}
	board := cli.Bundle + "/bin/node " + home + "/board.mjs"
	settings := start.JSON("edict/settings.json", chain{
		chainTimes: edictTimes, Program: start.Argv, Args: optionsOpenClaw(r), Session: cmp.Or(r.Session, uuid.NewString()), Turn: r.Turn, Fresh: r.Session == "",
		Message: r.Message, Time: r.Time.Seconds(), Folder: home, Board: home + "/board.json", Roles: roles,
		Rules: strings.TrimSpace(strings.ReplaceAll(edictText("rules.md"), "COMMAND", board)), Word: strings.TrimSpace(edictText("word.md")),
	})
	start.Argv = []string{cli.Bundle + "/bin/node", start.Text("edict/drive.mjs", edictText("drive.mjs")), settings}
	start.Text("edict/board.mjs", edictText("board.mjs"))
	return start, nil
}

// edictText returns an embedded file.
func edictText(name string) string {
	b, err := edictFiles.ReadFile(path.Join("edict", name))
	if err != nil {
		panic(err) // it is not embedded
	}
	return string(b)
}

// edictEvents reads the transcript of taizi as that of OpenClaw, and those of the
// other roles as the transcripts of sub-agents.
type edictEvents struct {
	openClawEvents

	role *piEvents // of the call that continues
	call string
}

// Line implements cli.Events.
func (e *edictEvents) Line(line []byte) {
	var v struct {
		Type    string          `json:"type"`
		Call    string          `json:"call"`
		Text    string          `json:"text"`
		Message string          `json:"message"`
		Event   json.RawMessage `json:"event"`
	}
	if !cli.Parse(line, &v) {
		return
	}
	switch v.Type {
	case "role":
		e.of(v.Call, v.Event)
	case "called":
		e.book.Called(v.Call, v.Text)
	case "failed":
		if e.call != v.Call || e.role.end.Wrong == "" {
			e.end = cli.Ending{Wrong: cmp.Or(v.Message, unsaid)}
		} else {
			e.end = e.role.end
		}
	case "note":
		e.book.Note(trajectory.User, v.Text)
	default:
		e.openClawEvents.Line(line)
	}
}

// of reads an event of a role. Each message is logged, because steps of sub-agents
// are recorded at their end: a chain that continues is not silent.
func (e *edictEvents) of(call string, event json.RawMessage) {
	if call == "" {
		return
	}
	if e.role == nil || e.call != call {
		e.role, e.call = &piEvents{book: e.book.In(call)}, call
	}
	var v piEvent
	if cli.Parse(event, &v) && v.Type == "message" {
		if e.book.Log("%s: %s", call, v.Message.Role); v.Message.Role == "user" {
			e.role.book.Note(trajectory.User, streamjson.Text(v.Message.Content))
		}
	}
	e.role.Line(event)
}
