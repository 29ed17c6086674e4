// Command berth runs agents against tasks in sandboxes. Which task formats it
// reads is decided here and nowhere else.
package main

import (
	"os"

	"github.com/berth-eval/berth/cmd/berth/internal/cli"
	"github.com/berth-eval/berth/tasks/gauntlet"
	"github.com/berth-eval/berth/tasks/harbor"
	"github.com/berth-eval/berth/tasks/sokoban"
	"github.com/berth-eval/berth/tasks/uniclaw"
	"github.com/berth-eval/berth/tasks/webui"
)

func main() {
	os.Exit(cli.Main(harbor.Format{}, sokoban.Format{}, uniclaw.Format{}, webui.Format{}, gauntlet.Format{}))
}
