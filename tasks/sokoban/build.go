package sokoban

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// The names of the actions, and what plays them.
const (
	restart  = "Restart"
	solution = "solution"
)

var actions = map[byte]string{'u': "Up", 'd': "Down", 'l': "Left", 'r': "Right"}

// agentTime is how long an agent may work on a level.
const agentTime = task.Duration(time.Hour)

// score is what decides: the best summed reward, as points beside the bound.
const score = "score"

// Points of the score for each unit of reward, and of the bound itself.
const (
	perReward = 5
	ofBound   = 100
)

// task makes a task of a level that was checked.
func (l *level) task(dir, source string, c *Config) (*task.Task, error) {
	set, err := json.Marshal(map[string]any{"num_boxes": l.Boxes, "max_steps": l.Most, "restart": c.Restart})
	if err != nil {
		return nil, err
	}
	verify := map[string]any{"reduce": "best"}
	if l.Bound != nil {
		verify["bound"], verify["scale"], verify["offset"] = rounded(*l.Bound), perReward, ofBound
	}
	if l.rebuilt {
		verify["labels"] = map[string]string{"level": "rebuilt"}
	}
	judge, err := json.Marshal(verify)
	if err != nil {
		return nil, err
	}
	t := &task.Task{
		Name: l.name, Format: Name, Dir: dir, File: source + "/" + l.id,
		Labels:      task.Labels{Category: l.Class},
		Environment: task.Environment{OS: "linux", Network: task.Network{Mode: task.NetworkNone}, Settings: set},
		Mode:        task.ModeCopies,
		Success:     task.Success{Score: score},
		Stages: []task.Stage{{
			Name: "main", Instruction: []task.Part{{Text: instruction(c)}},
			Agent:     task.Phase{Time: agentTime},
			Verifiers: []task.VerifierUse{{Name: "reward", Settings: judge}},
			Surface:   &task.Surface{Level: l.grid.text(), Observations: c.Observations, Actions: offered(c), Steps: c.Steps},
		}},
	}
	if l.rebuilt {
		t.Tags = []string{"rebuilt"}
	}
	if l.Solution != "" {
		text := l.played()
		t.Resources = []task.Resource{{
			Name: solution, Folder: true, Audience: []task.Role{task.RoleOracle},
			Entries: []task.Entry{{Path: "actions.jsonl", Mode: 0o644, Size: int64(len(text)), Text: text}},
		}}
		t.Stages[0].Reference = &task.Reference{Resource: solution, Argv: []string{"true"}}
	}
	all, err := json.Marshal(map[string]any{"format": 1, "name": l.name, "level": l.grid.text(), "about": l.about, "rebuilt": l.rebuilt})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(all)
	t.Digest = "sha256:" + hex.EncodeToString(sum[:])
	return t, nil
}

// rounded removes what adding tenths leaves behind.
func rounded(v float64) float64 { return math.Round(v*1e9) / 1e9 }

func offered(c *Config) []string {
	all := []string{"Up", "Down", "Left", "Right"}
	if c.Restart {
		all = append(all, restart)
	}
	return all
}

// played returns the solution as calls, one in each line.
func (l *level) played() string {
	var b strings.Builder
	for i := range len(l.Solution) {
		b.WriteString(`{"name":"` + actions[l.Solution[i]|0x20] + `"}` + "\n")
	}
	return b.String()
}

// instruction is what an agent is told.
func instruction(c *Config) string {
	var b strings.Builder
	b.WriteString(`You play Sokoban. You see a room from above: walls, floor, boxes, targets, and a player, whom you control. Push every box onto a target, in as few moves as you can.

- Up, Down, Left and Right move the player by one cell. Nothing happens at a wall.
- If a box is in that cell, the player pushes it one cell further, if the cell behind it is free.
- A box cannot be pulled, and two boxes cannot be pushed at once. A box in a corner stays there.
`)
	if c.Restart {
		b.WriteString("- Restart puts the player and the boxes back to where they were at the start. It counts as a move.\n")
	}
	for _, k := range c.Observations {
		switch k {
		case "image":
			b.WriteString("\nIn the picture, walls are brown bricks, boxes are square with a cross, targets are pink rings, and the player is green and round. A box on a target is orange, and a player on a target is yellow.\n")
		case "tiny":
			b.WriteString("\nIn the small picture, each pixel is a cell: black is wall, white is floor, pink is a target, brown is a box, orange is a box on a target, green is the player, and yellow is the player on a target.\n")
		case "grid":
			b.WriteString("\nIn the text, # is wall, a blank is floor, $ is a box, . is a target, * is a box on a target, @ is the player, and + is the player on a target.\n")
		}
	}
	return b.String()
}
