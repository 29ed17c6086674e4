package harbor

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// defaultStage is the name of the only stage of a task without steps.
const defaultStage = "main"

// stages makes one stage of a task without steps, or one of each step.
func (b *builder) stages(ctx context.Context) error {
	c := b.config
	if len(c.steps) == 0 {
		return b.stage(ctx, &stepConfig{name: defaultStage}, ".")
	}
	if b.IsFile(fileInstruction) {
		b.warn(fileInstruction, "File without effect", "A task with steps has one instruction for each step.")
	}
	for i := range c.steps {
		s := &c.steps[i]
		if s.name == "" {
			continue
		}
		dir := path.Join(dirSteps, s.name)
		if !b.IsDir(dir) {
			at := b.reader.Position(s.path + ".name")
			b.Problems = append(b.Problems, task.Problem{
				File: fileConfig, Line: at.Line, Column: at.Column, Key: s.path + ".name", Severity: task.Error,
				Summary: "Folder of a step is missing", Detail: "Step \"" + s.name + "\" needs the folder " + dir + "/.",
			})
			continue
		}
		if err := b.stage(ctx, s, dir); err != nil {
			return err
		}
	}
	b.strays()
	return nil
}

// strays warns of folders of steps that task.toml does not name.
func (b *builder) strays() {
	for _, n := range b.Below(taskfolder.Whole) {
		dir, name := path.Split(n.Path)
		if dir == dirSteps+"/" && n.Mode.IsDir() && b.t.Stage(name) == nil &&
			!slices.ContainsFunc(b.config.steps, func(s stepConfig) bool { return s.name == name }) {
			b.warn(n.Path, "Step is not run", "%s has no [[steps]] with the name %q.", fileConfig, name)
		}
	}
}

// stage adds one stage, whose own files are in dir ("." for the task itself).
func (b *builder) stage(ctx context.Context, s *stepConfig, dir string) error {
	c := b.config
	st := task.Stage{
		Name: s.name,
		Agent: task.Phase{
			Time: cmp.Or(s.agent.time, c.agent.time), TimeKey: s.timeKey("agent", s.agent.time),
			User: cmp.Or(s.agent.user, c.agent.user), Network: cmp.Or(s.agent.network, c.agent.network),
		},
		Healthcheck: s.healthcheck,
		MinScores:   s.minScores,
		Artifacts:   slices.Concat(c.artifacts, s.artifacts),
		Hooks:       slices.Concat(c.verifier.collect, s.verifier.collect),
	}
	st.Instruction = b.instruction(path.Join(dir, fileInstruction))
	if err := b.verification(ctx, &st, s, dir); err != nil {
		return err
	}
	b.nothingToVerify(&st, s)
	if dir != "." {
		b.step(&st, dir)
	}
	b.reference(&st, dir)
	b.prior(&st, dir)
	b.t.Stages = append(b.t.Stages, st)
	return nil
}

// timeKey returns the key of a time limit: of the step if it has one, else of the task.
func (s *stepConfig) timeKey(part string, own task.Duration) string {
	if own != 0 {
		return strings.TrimPrefix(s.path+"."+part+".timeout_sec", ".")
	}
	return part + ".timeout_sec"
}

// verification fills in how the stage is graded.
func (b *builder) verification(ctx context.Context, st *task.Stage, s *stepConfig, dir string) error {
	c := b.config
	v := task.Phase{
		Time:    cmp.Or(s.verifier.time, c.verifier.time, defaultVerifyTime),
		TimeKey: s.timeKey("verifier", s.verifier.time),
		User:    cmp.Or(s.verifier.user, c.verifier.user),
		Network: cmp.Or(s.verifier.network, c.verifier.network),
	}
	if dir != "." && s.verifier.time == 0 {
		// Harbor gives such a step 600 s whatever the task says. A task that
		// asks for more means it; one that asks for less may rely on the 600 s.
		v.Time = max(c.verifier.time, defaultVerifyTime)
	}
	v.Env = merge(c.verifier.env, s.verifier.env)
	st.Verify = v
	st.Mode = task.ModeLive
	os := c.env.os
	bundled := false
	switch {
	case b.separate(s):
		st.Mode = task.ModeSeparate
		if err := b.verifyIn(ctx, st, s, dir); err != nil {
			return err
		}
		if st.Verify.Network == nil {
			st.Verify.Network = &st.VerifyIn.Network
		}
		os, bundled = st.VerifyIn.OS, st.VerifyFilesInImage
	case b.definesOwn(s, dir):
		if err := b.verifyInIfAsked(ctx, st, s, dir); err != nil {
			return err
		}
	}
	b.graded(st, dir, b.script(dir, os))
	if script := st.Verifiers[len(st.Verifiers)-1].Name == verifierName; script && !bundled {
		b.needScript(dir, testScript(os))
	}
	return nil
}

func merge(a, b task.Env) task.Env {
	if len(a)+len(b) == 0 {
		return nil
	}
	e := make(task.Env, len(a)+len(b))
	maps.Copy(e, a)
	maps.Copy(e, b)
	return e
}

// separate says whether a step, or else the task, asks for verification in an
// environment of its own, by word or by describing one.
func (b *builder) separate(s *stepConfig) bool {
	for _, v := range []*verifierConfig{&s.verifier, &b.config.verifier} {
		if v.mode != "" || v.own != nil {
			return v.mode != "shared"
		}
	}
	return false
}

// nothingToVerify warns of a separate verification that sees nothing of what the
// agent did, unless the agent is told to write into the folder that is always
// exported, or a hook may.
func (b *builder) nothingToVerify(st *task.Stage, s *stepConfig) {
	if st.Mode != task.ModeSeparate || len(st.Artifacts)+len(st.Hooks) > 0 || slices.ContainsFunc(st.Instruction, toArtifacts) {
		return
	}
	key, v := "verifier", &b.config.verifier
	if s.path != "" && (s.verifier.mode != "" || s.verifier.own != nil) {
		key, v = s.path+".verifier", &s.verifier
	}
	if v.mode != "" {
		key += ".environment_mode"
	}
	b.reader.Warn(key, "Separate verification without artifacts", "Its sandbox gets what the agent left in %s, and no other file. "+
		"Declare artifacts, or tell the agent in the instruction to write there.", placeArtifacts)
}

// toArtifacts reports whether a part of an instruction names the folder that is
// always exported.
func toArtifacts(p task.Part) bool { return strings.Contains(p.Text, placeArtifacts) }

// definesOwn says whether a step, or else the task, has an image for its
// verifier.
func (b *builder) definesOwn(s *stepConfig, dir string) bool {
	for _, v := range []*verifierConfig{&s.verifier, &b.config.verifier} {
		if v.own != nil && v.own.image != "" {
			return true
		}
	}
	return b.defines(path.Join(dir, dirTests)) || b.defines(dirTests)
}

// verifyInIfAsked is verifyIn for a stage that the task verifies in the agent's
// sandbox. Only an experiment that asks for a separate verification uses the
// result, so that errors in the compose file do not break the task.
func (b *builder) verifyInIfAsked(ctx context.Context, st *task.Stage, s *stepConfig, dir string) error {
	before := len(b.Problems)
	if err := b.verifyIn(ctx, st, s, dir); err != nil {
		return err
	}
	for i := range b.Problems[before:] {
		p := &b.Problems[before+i]
		if p.Severity == task.Error {
			p.Severity = task.Warning
			p.Detail += " It matters only if the experiment sets verify = \"separate\"."
		}
	}
	return nil
}

// verifyIn fills in the environment of a separate verification. One that a
// compose file describes has all of its containers. If the file has errors, the
// environment only names it: then it does not look like one container.
func (b *builder) verifyIn(ctx context.Context, st *task.Stage, s *stepConfig, dir string) error {
	made, bundled, err := b.verifierMade(ctx, s, dir)
	if err != nil {
		return err
	}
	var health *task.Healthcheck
	for _, v := range []*environmentConfig{s.verifier.own, b.config.verifier.own} {
		if v != nil {
			health = v.healthcheck
			break
		}
	}
	e, file, before := made, made.Compose, len(b.Problems)
	st.VerifyIn, st.VerifyFilesInImage = &e, bundled
	if st.VerifyHealthcheck, err = b.compose(ctx, &e, health); err != nil {
		return err
	}
	if file != "" && e.Compose == "" && e.Image == "" && (e.Build == nil || e.Build.File == "") {
		b.bad(file, "Nothing says what the sandbox is made of", "Give service main an image or a build, or add %s.",
			path.Join(path.Dir(file), fileDocker))
	}
	if file != "" && task.Broken(b.Problems[before:]) {
		e = made
	}
	return nil
}

// verifierMade finds the environment of a separate verification: the first image
// or definition of the step's settings, the step's tests, the task's settings
// and the task's tests; else the agent's environment afresh. An image of the
// verifier's own has the tests in it (bundled), and nothing is placed.
func (b *builder) verifierMade(ctx context.Context, s *stepConfig, dir string) (e task.Environment, bundled bool, err error) {
	settings := &b.config.env
	for _, v := range []*environmentConfig{s.verifier.own, b.config.verifier.own} {
		if v != nil {
			settings = v
			break
		}
	}
	stepTests := path.Join(dir, dirTests)
	taskOwn := b.config.verifier.own
	switch {
	case s.verifier.own != nil && s.verifier.own.image != "":
		e, err = b.made(ctx, s.verifier.own, "")
		return e, true, err
	case dir != "." && b.defines(stepTests):
		e, err = b.made(ctx, withoutImage(settings), stepTests)
		return e, true, err
	case taskOwn != nil && taskOwn.image != "":
		e, err = b.made(ctx, withImage(settings, taskOwn.image), "")
		return e, true, err
	case b.defines(dirTests):
		e, err = b.made(ctx, withoutImage(settings), dirTests)
		return e, true, err
	default:
		e, err = b.made(ctx, withImage(settings, b.config.env.image), dirEnvironment)
		return e, false, err
	}
}

func withImage(e *environmentConfig, image string) *environmentConfig {
	c := *e
	c.image = image
	return &c
}

func withoutImage(e *environmentConfig) *environmentConfig { return withImage(e, "") }

// defines says whether a folder defines an image.
func (b *builder) defines(dir string) bool {
	return b.IsFile(path.Join(dir, fileDocker)) || b.IsFile(path.Join(dir, fileCompose))
}

// needScript reports a missing test script, of the step or of the task.
func (b *builder) needScript(dir, name string) {
	p := path.Join(dir, dirTests, name)
	shared := path.Join(dirTests, name)
	switch {
	case !b.IsFile(p) && !b.IsFile(shared):
		b.bad(p, "File is missing", "The verifier runs this script, which writes %s/reward.txt or reward.json.", placeVerifier)
	case b.IsFile(p) && b.ignored(b.ByPath[p]):
		b.bad(p, "Test script is ignored", "An %s leaves it out, but the verifier runs it.", fileIgnore)
	case !b.IsFile(p) && b.ignored(b.ByPath[shared]):
		b.bad(shared, "Test script is ignored", "An %s leaves it out, but the verifier runs it.", fileIgnore)
	}
}

// step adds what only a step has: its own tests on top of the task's, and
// files and a script that prepare the working directory.
func (b *builder) step(st *task.Stage, dir string) {
	if tests := path.Join(dir, dirTests); b.IsDir(tests) {
		b.resource(&task.Resource{
			Name: tests, Path: tests, Audience: []task.Role{task.RoleVerifier},
			Place: placeTests, Phase: task.PlaceVerify, Stage: st.Name, Folder: true,
		})
	}
	workdir := path.Join(dir, dirWorkdir)
	if !b.IsDir(workdir) {
		return
	}
	b.resource(&task.Resource{
		Name: workdir, Path: workdir, Audience: []task.Role{task.RoleAgent},
		Place: ".", Phase: task.PlaceSetup, Stage: st.Name, Folder: true,
	})
	if b.IsFile(path.Join(workdir, "setup.sh")) {
		st.Setup = []task.Command{{Argv: []string{
			"sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash ./setup.sh; exec sh ./setup.sh",
		}}}
	}
}

// reference names the solution of the stage: its own, or that of the task.
func (b *builder) reference(st *task.Stage, dir string) {
	script := solveScript(b.config.env.os)
	own := path.Join(dir, dirSolution)
	name := dirSolution
	played := func(dir string) bool { return b.config.berth.surface != nil && b.IsFile(path.Join(dir, fileActions)) }
	switch {
	case dir != "." && (b.IsFile(path.Join(own, script)) || played(own)):
		name = own
		b.resource(&task.Resource{
			Name: own, Path: own, Audience: []task.Role{task.RoleOracle},
			Place: placeSolution, Phase: task.PlaceTurn, Stage: st.Name, Folder: true,
		})
	case !b.IsFile(path.Join(dirSolution, script)) && !played(dirSolution):
		return
	}
	argv := shell(path.Join(placeSolution, script))
	if !b.IsFile(path.Join(name, script)) { // the oracle plays the actions
		argv = []string{"cat", path.Join(placeSolution, fileActions)}
	}
	st.Reference = &task.Reference{
		Resource: name, Argv: argv,
		Env: merge(task.Text(map[string]string{"DEBIAN_FRONTEND": "noninteractive"}), b.config.solutionEnv),
	}
}

// prior adds the trajectory that the agent of the first stage continues from.
func (b *builder) prior(st *task.Stage, dir string) {
	p := path.Join(dir, filePrior)
	if !b.IsFile(p) {
		return
	}
	if len(b.t.Stages) > 0 {
		b.warn(p, "File without effect", "Only the first step can have one.")
		return
	}
	data, err := b.read(p)
	if err != nil {
		b.unread(p, err)
		return
	}
	if _, problems := trajectory.Parse(data); len(problems) > 0 {
		b.bad(p, "Not a valid trajectory", "%s: %s.", problems[0].Path, problems[0].Message)
		return
	}
	st.PriorTrajectory = path.Join("prior", filePrior)
	b.resource(&task.Resource{
		Name: st.PriorTrajectory, Path: p, Audience: []task.Role{task.RoleAgent}, Stage: st.Name,
	})
}

// notUTF8 returns the first line with bytes that are not UTF-8.
func notUTF8(data []byte) int {
	n := 0
	for text := range bytes.Lines(data) {
		if n++; !utf8.Valid(text) {
			break
		}
	}
	return n
}

// instruction reads one, without the marks that authors put on top.
func (b *builder) instruction(p string) []task.Part {
	if !b.IsFile(p) {
		b.bad(p, "File is missing", "It tells the agent what to do.")
		return nil
	}
	data, err := b.read(p)
	switch {
	case err != nil:
		b.unread(p, err)
		return nil
	case taskfolder.NUL(data) > 0:
		b.Problems = append(b.Problems, task.Problem{
			File: p, Line: taskfolder.NUL(data), Severity: task.Error, Summary: "Not a text", Detail: "It has a NUL byte in this line: remove it.",
		})
		return nil
	case !utf8.Valid(data):
		b.Problems = append(b.Problems, task.Problem{
			File: p, Line: notUTF8(data), Severity: task.Error, Summary: "Not a text", Detail: "It has bytes in this line that are not UTF-8: save it as UTF-8.",
		})
		return nil
	}
	text := stripCanary(strings.ReplaceAll(string(data), "\r\n", "\n"))
	if strings.TrimSpace(text) == "" {
		b.warn(p, "File is empty", "It tells the agent what to do: only agents without a model can run the task.")
		return nil
	}
	return []task.Part{{Text: text}}
}

// stripCanary removes the lines on top that mark a file for those who collect
// training data, and blank lines on top.
func stripCanary(s string) string {
	lines := strings.Split(s, "\n")
	for len(lines) > 0 && isCanary(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	return strings.Join(lines, "\n")
}

func isCanary(line string) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	if !strings.Contains(line, "canary") {
		return false
	}
	return strings.HasPrefix(line, "#") || (strings.HasPrefix(line, "<!--") && strings.HasSuffix(line, "-->"))
}
