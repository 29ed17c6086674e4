package e2etest

import (
	"fmt"
	"path"
	"path/filepath"
	"testing"
)

// What solves the smallest task, and its test.
const (
	SolveTiny = ": > /app/done"
	TestTiny  = "if [ -e /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
)

// Task is a task in Harbor's format. Its solution and its test are shell scripts.
type Task struct {
	Name        string // such as e2e/one: the last part is the name of its folder
	Image       string // of an engine; empty: a Dockerfile that local takes, too
	More        string // the end of task.toml, in the table of the environment
	Solve, Test string
}

// Write writes the task into a folder of tasks.
func (k *Task) Write(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{
		"instruction.md":    "Write the file done.\n",
		"solution/solve.sh": "#!/bin/sh\n" + k.Solve + "\n",
		"tests/test.sh":     "#!/bin/sh\n" + k.Test + "\n",
	}
	image := ""
	if k.Image != "" {
		image = fmt.Sprintf("docker_image = %q\n", k.Image)
	} else {
		files["environment/Dockerfile"] = "FROM debian:bookworm-slim\nWORKDIR /app\n"
	}
	files["task.toml"] = fmt.Sprintf(`schema_version = "1.4"
[task]
name = %q
[agent]
timeout_sec = 600
[verifier]
timeout_sec = 60
[environment]
%snetwork_mode = "no-network"
workdir = "/app"
%s`, k.Name, image, k.More)
	Write(t, filepath.Join(dir, path.Base(k.Name)), files)
}

// Experiment is the file of an experiment over ./tasks with the agents oracle and nop.
// body is the rest of its block, config the configuration of its environment, and more
// the end of the file.
func Experiment(environment, config, body, more string) string {
	return fmt.Sprintf(`experiment "e2e" {
  datasets    = [dataset.tasks]
  environment = environment.here
  %s
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "here" {
  plugin = %q
  config {
    %s
  }
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
%s`, body, environment, config, more)
}
