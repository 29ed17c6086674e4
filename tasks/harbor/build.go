package harbor

import (
	"context"
	"encoding/json"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/harbor/internal/compose"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// Paths and names that programs of the format expect in a sandbox.
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

// builder builds a task from a folder and its configuration. Problems go to the
// two lists of problems.
type builder struct {
	*folder
	reader *document.Reader
	config *config
	dir    string
	ignore *ignore // of all .harborignore files
	t      *task.Task

	options task.Options
}

func (b *builder) task(ctx context.Context) (*task.Task, error) {
	c := b.config
	atLeast := passReward
	b.t = &task.Task{
		Name: c.name, Format: Name, FormatVersion: c.schema, Version: c.version, Description: c.description,
		Keywords: c.keywords, Authors: c.authors, Metadata: c.metadata, Labels: c.labels, Dir: b.dir,
		Healthcheck: c.env.healthcheck, MCPServers: c.env.servers,
		Success: task.Success{Score: rewardKey, Reduce: reducers[c.strategy], AtLeast: &atLeast},
		Paths:   task.Paths{AgentLogs: placeAgentLogs, VerifierLogs: placeVerifier, Artifacts: placeArtifacts},
	}
	if own := c.berth.score; own != "" {
		b.t.Success.Score, b.t.Success.AtLeast = own, nil
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
	b.Leaving(b.ignored)
	if err = b.environment(ctx); err != nil {
		return nil, err
	}
	b.shared()
	if err = b.stages(ctx); err != nil {
		return nil, err
	}
	b.interact()
	b.mainUser()
	b.users()
	b.services()
	b.t.Digest, err = b.digest(ctx)
	return b.t, err
}

var reducers = map[string]task.Reducer{"": task.ReduceMean, "mean": task.ReduceMean, "final": task.ReduceLast}

// environment builds the agent's environment.
func (b *builder) environment(ctx context.Context) error {
	if !b.IsDir(dirEnvironment) && b.config.env.image == "" {
		b.bad(dirEnvironment, "Folder is missing", "Make an %s/ folder with a Dockerfile, or write docker_image in [environment] of %s.",
			dirEnvironment, fileConfig)
	}
	e, err := b.made(ctx, &b.config.env, dirEnvironment)
	if err != nil {
		return err
	}
	if b.t.Healthcheck, err = b.compose(ctx, &e, b.t.Healthcheck); err != nil {
		return err
	}
	b.t.Environment = e
	if e.Image == "" && e.Compose == "" && (e.Build == nil || e.Build.File == "") && b.IsDir(dirEnvironment) {
		b.bad(dirEnvironment, "Nothing says what the sandbox is made of",
			"Add %s/Dockerfile, or write docker_image in [environment] of %s.", dirEnvironment, fileConfig)
	}
	if e.Upload {
		b.resource(&task.Resource{Name: dirEnvironment, Path: dirEnvironment, Place: ".", Phase: task.PlaceCreate, Folder: true})
	}
	return nil
}

// made builds an environment from its settings and the folder that defines its
// image.
func (b *builder) made(ctx context.Context, c *environmentConfig, dir string) (task.Environment, error) {
	e := task.Environment{
		Image: c.image, StartTime: c.start, StartTimeKey: c.startKey, OS: c.os, Workdir: c.workdir, Env: c.env, Limits: c.limits, Network: c.network,
	}
	if !b.IsDir(dir) {
		return e, nil
	}
	if b.IsFile(path.Join(dir, fileCompose)) {
		e.Compose = path.Join(dir, fileCompose)
	}
	if b.IsFile(path.Join(dir, otherCompose)) {
		b.warn(path.Join(dir, otherCompose), "File without effect", "Only %s is read.", fileCompose)
	}
	files := b.Below(dir)
	docker := b.IsFile(path.Join(dir, fileDocker))
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

// compose reads the containers from the environment's compose file, if it has
// one. For the main container, the compose file decides about the image, as in
// the format's own tool, and task.toml about everything else. It returns the
// healthcheck of the main container: given, which task.toml has, or that of the
// file.
func (b *builder) compose(ctx context.Context, e *task.Environment, given *task.Healthcheck) (*task.Healthcheck, error) {
	file := e.Compose
	if file == "" {
		return given, nil
	}
	data, err := b.read(file)
	if err != nil {
		b.unread(file, err)
		return given, nil
	}
	f, problems := compose.Read(ctx, file, data, compose.Variables{Given: composeVariables(e), Allowed: b.options.EnvAllowed},
		func(name string) (map[string][]byte, error) { return b.contents(path.Dir(file), name) })
	b.Problems = append(b.Problems, problems...)
	if task.Broken(problems) {
		return given, nil // keep Compose set, so that this does not look like a task with one container
	}
	e.Compose = ""
	m := &f.Main
	if m.Build, err = b.composed(ctx, file, "main", m.Build); err != nil {
		return given, err
	}
	switch {
	case m.Build != nil:
		e.Image, e.Build, e.Upload = "", m.Build, false
	case m.Image != "" && m.Image != ownImage:
		e.Image, e.Upload = m.Image, false
	}
	own, ownBuild := e.Image, e.Build // without the further files of the main container
	if copies := f.Copies[mainService]; len(copies) > 0 {
		e.Image, e.Build = b.withCopies(path.Dir(file), e.Image, e.Build, copies)
	}
	if f.NoNetwork {
		e.Network = task.Network{Mode: task.NetworkNone}
	}
	if e.Limits.CPUMilli == 0 {
		e.Limits.CPUMilli = m.Limits.CPUMilli
	}
	if e.Limits.MemoryMiB == 0 {
		e.Limits.MemoryMiB = m.Limits.MemoryMiB
	}
	e.Limits.ShmMiB, e.Limits.Pids = m.Limits.ShmMiB, m.Limits.Pids
	e.Entrypoint, e.Command, e.User, e.DependsOn, e.Volumes = m.Entrypoint, m.Command, m.User, m.DependsOn, m.Volumes
	e.Hostname, e.Aliases = m.Hostname, m.Aliases
	if e.Workdir == "" {
		e.Workdir = m.Workdir
	}
	if len(m.Env) > 0 {
		maps.Copy(m.Env, e.Env)
		e.Env = m.Env
	}
	switch {
	case m.Healthcheck == nil:
	case given != nil:
		b.bad(file, "Said twice", "Service main has a healthcheck here and in %s: remove one of them.", fileConfig)
	default:
		given = m.Healthcheck
	}
	for i := range f.Sidecars {
		s := &f.Sidecars[i]
		if s.Image == ownImage {
			if s.Image = own; s.Image == "" {
				s.Build = ownBuild
			}
		} else if s.Build, err = b.composed(ctx, file, s.Name, s.Build); err != nil {
			return given, err
		}
		if copies := f.Copies[s.Name]; len(copies) > 0 {
			s.Image, s.Build = b.withCopies(path.Dir(file), s.Image, s.Build, copies)
		}
	}
	e.Sidecars = f.Sidecars
	return given, nil
}

// ownImage stands for the image that the task's own Dockerfile makes.
const ownImage = "berth.invalid/main"

// composeVariables are those that the format's own tool sets for a compose file.
func composeVariables(e *task.Environment) map[string]string {
	v := map[string]string{
		"CONTEXT_DIR": ".", "MAIN_IMAGE_NAME": ownImage, "TEST_DIR": placeTests, "COMPOSE_PROJECT_NAME": "task",
		"HOST_VERIFIER_LOGS_PATH": compose.HostLogs + "verifier", "ENV_VERIFIER_LOGS_PATH": placeVerifier,
		"HOST_AGENT_LOGS_PATH": compose.HostLogs + "agent", "ENV_AGENT_LOGS_PATH": placeAgentLogs,
		"HOST_ARTIFACTS_PATH": compose.HostLogs + "artifacts", "ENV_ARTIFACTS_PATH": placeArtifacts,
	}
	if e.Image != "" {
		v["PREBUILT_IMAGE_NAME"] = e.Image
	}
	if e.Limits.CPUMilli > 0 {
		v["CPUS"] = strconv.FormatFloat(float64(e.Limits.CPUMilli)/1000, 'f', -1, 64)
	}
	if e.Limits.MemoryMiB > 0 {
		v["MEMORY"] = strconv.FormatInt(e.Limits.MemoryMiB, 10) + "M"
	}
	return v
}

// mainUser sets the user of the compose file's main service for commands that
// name none.
func (b *builder) mainUser() {
	user := b.t.Environment.User
	for i := range b.t.Stages {
		s := &b.t.Stages[i]
		if s.Agent.User == "" {
			s.Agent.User = user
		}
		switch {
		case s.Verify.User != "":
		case b.t.ModeOf(s) != task.ModeSeparate:
			s.Verify.User = user
		case s.VerifyIn != nil:
			s.Verify.User = s.VerifyIn.User
		}
	}
}

// shared adds the resources of the whole task.
func (b *builder) shared() {
	if b.IsDir(dirSolution) {
		b.resource(&task.Resource{
			Name: dirSolution, Path: dirSolution, Audience: []task.Role{task.RoleOracle},
			Place: placeSolution, Phase: task.PlaceTurn, Folder: true,
		})
	}
	if b.IsDir(dirTests) {
		b.resource(&task.Resource{
			Name: dirTests, Path: dirTests, Audience: []task.Role{task.RoleVerifier},
			Place: placeTests, Phase: task.PlaceVerify, Folder: true,
		})
	}
	if len(b.config.steps) > 0 && b.IsFile(filePrior) {
		b.warn(filePrior, "File without effect", "A task with steps has it beside the instruction of the first step.")
	}
}

// users collects the users that commands run as.
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

// script returns the verifier that runs the tests of a step and reads the reward.
func (b *builder) script(dir, os string) task.VerifierUse {
	s := task.Script{
		Reports: b.reports(dir, testScript(os)),
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

// named is an option of a test program, such as pytest, with its report.
var named = regexp.MustCompile(`--(?:ctrf|junit-?xml)[= ]+["']?(/[^\s"';|&]+)`)

// maxReports is how many reports of tests are read.
const maxReports = 4

// reports returns the reports that the test script names, and those that tests of
// this format usually write.
func (b *builder) reports(dir, script string) (rs []task.TestReport) {
	text, err := b.read(path.Join(dir, dirTests, script))
	if err != nil {
		text, err = b.read(path.Join(dirTests, script))
	}
	add := func(r task.TestReport) {
		known := slices.ContainsFunc(rs, func(o task.TestReport) bool { return o.Path == r.Path })
		if !known && path.Clean(r.Path) == r.Path && len(rs) < maxReports {
			rs = append(rs, r)
		}
	}
	if err == nil {
		for _, m := range named.FindAllSubmatch(text, -1) {
			add(task.TestReport{Path: string(m[1]), Expected: true})
		}
	}
	for _, name := range []string{"ctrf.json", "junit.xml"} {
		add(task.TestReport{Path: path.Join(placeVerifier, name)})
	}
	return rs
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
