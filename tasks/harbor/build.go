package harbor

import (
	"context"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// What the format's programs expect in a sandbox.
const (
	placeTests     = "/tests"
	placeSolution  = "/solution"
	placeAgentLogs = "/logs/agent"
	placeVerifier  = "/logs/verifier"
	placeArtifacts = "/logs/artifacts"

	rewardKey  = "reward"
	passReward = 1.0

	// verifierName is the verifier plugin that runs a task's own tests.
	verifierName = "script"
)

// builder makes a task of a folder and its configuration. What it finds wrong
// goes to the two lists of problems.
type builder struct {
	*folder
	reader *reader
	config *config
	dir    string
	ignore *ignore // of all .harborignore files
	t      *task.Task
}

func (b *builder) task(ctx context.Context) (*task.Task, error) {
	c := b.config
	atLeast := passReward
	b.t = &task.Task{
		Name: c.name, Format: Name, FormatVersion: c.schema, Version: c.version, Description: c.description,
		Keywords: c.keywords, Authors: c.authors, Metadata: c.metadata, Dir: b.dir,
		Healthcheck: c.env.healthcheck, MCPServers: c.env.servers,
		Success: task.Success{Score: rewardKey, Reduce: reducers[c.strategy], AtLeast: &atLeast},
		Paths:   task.Paths{AgentLogs: placeAgentLogs, VerifierLogs: placeVerifier, Artifacts: placeArtifacts},
	}
	if b.t.Name == "" {
		b.t.Name = filepath.Base(b.dir)
	}
	if c.env.skillsDir != "" {
		b.t.Skills = []task.Skill{{Dir: path.Clean(c.env.skillsDir)}}
	}
	var err error
	if b.ignore, err = b.harborignore(); err != nil {
		return nil, err
	}
	b.leaving()
	if err = b.environment(ctx); err != nil {
		return nil, err
	}
	b.shared()
	if err = b.stages(ctx); err != nil {
		return nil, err
	}
	b.users()
	b.services()
	b.t.Digest, err = b.digest(ctx)
	return b.t, err
}

var reducers = map[string]task.Reducer{"": task.ReduceMean, "mean": task.ReduceMean, "final": task.ReduceLast}

// environment says what the agent's sandbox is made of.
func (b *builder) environment(ctx context.Context) error {
	if !b.isDir(dirEnvironment) && b.config.env.image == "" {
		b.bad(dirEnvironment, "Folder is missing", "Make an %s/ folder with a Dockerfile, or write docker_image in [environment] of %s.",
			dirEnvironment, fileConfig)
	}
	e, err := b.made(ctx, &b.config.env, dirEnvironment)
	if err != nil {
		return err
	}
	b.t.Environment = e
	if e.Image == "" && e.Compose == "" && (e.Build == nil || e.Build.File == "") && b.isDir(dirEnvironment) {
		b.bad(dirEnvironment, "Nothing says what the sandbox is made of",
			"Add %s/Dockerfile, or write docker_image in [environment] of %s.", dirEnvironment, fileConfig)
	}
	if e.Upload {
		b.resource(&task.Resource{Name: dirEnvironment, Path: dirEnvironment, Place: ".", Phase: task.PlaceCreate, Folder: true})
	}
	return nil
}

// made turns the settings of an environment and the folder that defines its
// image into an environment.
func (b *builder) made(ctx context.Context, c *environmentConfig, dir string) (task.Environment, error) {
	e := task.Environment{
		Image: c.image, StartTime: c.start, OS: c.os, Workdir: c.workdir, Env: c.env, Limits: c.limits, Network: c.network,
	}
	if !b.isDir(dir) {
		return e, nil
	}
	if b.isFile(path.Join(dir, fileCompose)) {
		e.Compose = path.Join(dir, fileCompose)
	}
	if b.isFile(path.Join(dir, otherCompose)) {
		b.warn(path.Join(dir, otherCompose), "File without effect", "Only %s is read.", fileCompose)
	}
	files := b.below(dir)
	docker := b.isFile(path.Join(dir, fileDocker))
	if len(files) == 0 || (!docker && e.Compose == "" && c.image == "") {
		return e, nil
	}
	digest, err := b.contextDigest(ctx, dir)
	if err != nil {
		return e, err
	}
	e.Build = &task.Build{Context: dir, Digest: digest}
	if docker {
		e.Build.File = fileDocker
	}
	// A ready image with loose files beside it, and nothing that would build them in.
	e.Upload = c.image != "" && !docker && e.Compose == ""
	return e, nil
}

// shared adds the resources of the whole task.
func (b *builder) shared() {
	if b.isDir(dirSolution) {
		b.resource(&task.Resource{
			Name: dirSolution, Path: dirSolution, Audience: []task.Role{task.RoleOracle},
			Place: placeSolution, Phase: task.PlaceTurn, Folder: true,
		})
	}
	if b.isDir(dirTests) {
		b.resource(&task.Resource{
			Name: dirTests, Path: dirTests, Audience: []task.Role{task.RoleVerifier},
			Place: placeTests, Phase: task.PlaceVerify, Folder: true,
		})
	}
	if len(b.config.steps) > 0 && b.isFile(filePrior) {
		b.warn(filePrior, "File without effect", "A task with steps has it beside the instruction of the first step.")
	}
}

// users collects whom commands run as.
func (b *builder) users() {
	add := func(user string) {
		if user != "" && !slices.Contains(b.t.Environment.Users, user) {
			b.t.Environment.Users = append(b.t.Environment.Users, user)
		}
	}
	for i := range b.t.Stages {
		s := &b.t.Stages[i]
		add(s.Agent.User)
		if b.t.ModeOf(s) != task.ModeSeparate {
			add(s.Verify.User)
		}
		for _, h := range s.Hooks {
			if h.Service == "" {
				add(h.User)
			}
		}
	}
	slices.Sort(b.t.Environment.Users)
}

// script is what the verifier is told: run the tests, read the reward.
func (b *builder) script(os string) task.VerifierUse {
	s := task.Script{
		Command: shell(path.Join(placeTests, testScript(os))),
		Rewards: []task.RewardFile{
			{Path: path.Join(placeVerifier, "reward.json"), Kind: "json"},
			{Path: path.Join(placeVerifier, "reward.txt"), Kind: "number", Score: rewardKey},
		},
	}
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of strings
	}
	return task.VerifierUse{Name: verifierName, Settings: raw}
}

func testScript(os string) string {
	if os == "windows" {
		return "test.bat"
	}
	return "test.sh"
}

func solveScript(os string) string {
	if os == "windows" {
		return "solve.bat"
	}
	return "solve.sh"
}

// longer returns the longer of two times, where 0 means that none was written.
func longer(a, b task.Duration) task.Duration {
	return task.Duration(max(time.Duration(a), time.Duration(b)))
}
