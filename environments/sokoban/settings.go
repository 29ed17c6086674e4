package main

import (
	"fmt"

	"github.com/berth-eval/berth/environments/sokoban/internal/room"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
)

// Config is the block surface_config of an experiment.
type Config struct {
	Size int `berth:"size" default:"16" doc:"Pixels of a cell in the picture (kind image): a multiple of 16."`
}

// settings are what a task says about its level.
type settings struct {
	Boxes   int  `berth:"num_boxes" default:"0" doc:"Number of boxes that rewards count with. 0: as many as the level has."`
	Most    int  `berth:"max_steps" default:"200" doc:"After how many steps the game is over."`
	Restart bool `berth:"restart" default:"false" doc:"Whether there is an action Restart."`
}

// The bounds of the numbers above.
const (
	maxSize  = 128
	maxBoxes = room.MaxSide * room.MaxSide
	maxMoves = 1_000_000
)

// check implements plugins.Info.Settings.
func check(of plugins.Settings) []config.Problem {
	switch of.Capture {
	case "":
		return config.Validate(of.JSON, &settings{})
	case captureState:
		return config.Schema{}.Problems(of.JSON)
	default:
		return []config.Problem{{Summary: "No such capture", Detail: fmt.Sprintf("Got %q. The only one is %s.", of.Capture, captureState)}}
	}
}

// Validate implements config.Validator.
func (s *settings) Validate() []config.Problem {
	return append(config.Range("num_boxes", s.Boxes, 0, maxBoxes), config.Range("max_steps", s.Most, 1, maxMoves)...)
}

// problems returns what is wrong in a configuration and the task's settings.
func problems(c *Config, s *settings) (list []string) {
	if c.Size < room.Tile || c.Size > maxSize || c.Size%room.Tile != 0 {
		list = append(list, fmt.Sprintf("The size %d of a cell is not possible: choose a multiple of %d up to %d.", c.Size, room.Tile, maxSize))
	}
	for _, p := range s.Validate() {
		list = append(list, p.String())
	}
	return list
}
