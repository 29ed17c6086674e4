package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// start is how a plugin starts its CLI in a sandbox: everything needed to start
// it by hand.
type start struct {
	argv, env []string
	files     map[string]string // by their path in the sandbox
	stdin     string
	bundle    string // on the host
}

// notebook is a shell that starts nothing. It records what a plugin sends to a
// sandbox, and answers queries about the system with those of the host.
type notebook struct {
	pb.UnimplementedSandboxShellServer

	mu    sync.Mutex
	files map[string]string
	cli   *pb.ExecStart
	stdin []byte
}

// startOf asks the plugin of a CLI how it starts the CLI for a message. The
// error says what to do when the bundle is missing.
func (b *bench) startOf(ctx context.Context, name, url, message string, dialect model.Dialect) (start, error) {
	var s start
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(b.bin, "plugins")}})
	if err != nil {
		return s, err
	}
	defer h.Stop()
	a, _, err := h.Agent(ctx, name)
	if err != nil {
		return s, err
	}
	m := model.Endpoint{Inside: url, Token: "by-hand", Dialect: dialect, Name: modelName}
	needs, err := a.Check(ctx, agent.CheckRequest{Role: agent.RoleAgent, Models: map[string]model.Info{"default": {Dialect: dialect, Name: m.Name}}})
	if err != nil {
		return s, err
	}
	if len(needs.Refusals) > 0 || len(needs.Bundles) != 1 {
		return s, fmt.Errorf("%w: %s", errMissing, strings.Join(needs.Refusals, "; "))
	}
	n := &notebook{files: map[string]string{}}
	g := stream.NewServer()
	pb.RegisterSandboxShellServer(g, n)
	address := filepath.Join(b.dir, "notebook-"+name)
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", address)
	if err != nil {
		return s, err
	}
	go func() {
		for {
			c, closed := l.Accept()
			if closed != nil {
				return
			}
			go stream.ServeOn(g, c)
		}
	}()
	defer l.Close()
	x, err := a.Open(ctx, agent.Setup{
		Session: "notebook", Role: agent.RoleAgent, View: b.dir, Scratch: b.dir, Shell: "unix:" + address, Workdir: "/app",
		Models: map[string]model.Endpoint{"default": m},
	})
	if err != nil {
		return s, err
	}
	if _, err = x.Turn(ctx, agent.Message{Turn: 1, Text: message}, deaf{}); err != nil {
		return s, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cli == nil {
		return s, fmt.Errorf("the plugin of %s started nothing", name)
	}
	return start{texts(n.cli.GetArgv()), texts(n.cli.GetEnv()), n.files, string(n.stdin), needs.Bundles[0].Source}, x.Close(ctx, "", deaf{})
}

// errMissing means that something that is not part of the tree is missing on
// this machine.
var errMissing = errors.New("cannot be started here")

// Exec implements pb.SandboxShellServer.
func (n *notebook) Exec(st grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecReply]) error {
	m, err := st.Recv()
	if err != nil {
		return err
	}
	c := m.GetStart()
	if argv := texts(c.GetArgv()); len(argv) > 2 && argv[1] == "-c" { // a query about the system
		out, failed := exec.CommandContext(st.Context(), "/bin/sh", argv[1:]...).Output()
		if failed == nil {
			failed = st.Send(&pb.ExecReply{Is: &pb.ExecReply_Stdout{Stdout: out}})
		}
		return errors.Join(failed, st.Send(&pb.ExecReply{Is: &pb.ExecReply_Exit{Exit: &pb.Exit{}}}))
	}
	var in []byte
	for c.GetStdin() {
		m, err = st.Recv()
		if errors.Is(err, io.EOF) || err == nil && m.GetCloseStdin() {
			break
		}
		if err != nil {
			return err
		}
		in = append(in, m.GetStdin()...)
	}
	n.mu.Lock()
	n.cli, n.stdin = c, in
	n.mu.Unlock()
	return st.Send(&pb.ExecReply{Is: &pb.ExecReply_Exit{Exit: &pb.Exit{}}})
}

// Upload implements pb.SandboxShellServer.
func (n *notebook) Upload(st grpc.ClientStreamingServer[pb.UploadRequest, pb.UploadReply]) error {
	var raw []byte
	dir := ""
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if m.GetStart() != nil {
			dir = string(m.GetStart().GetDir())
		}
		raw = append(raw, m.GetData()...)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for t := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return st.SendAndClose(&pb.UploadReply{})
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			n.files[filepath.Join(dir, h.Name)] = string(text)
		}
	}
}

func texts(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// deaf is a recorder that keeps nothing.
type deaf struct{}

// Step implements agent.Recorder.
func (deaf) Step(trajectory.Step) error { return nil }

// Log implements agent.Recorder.
func (deaf) Log(string) error { return nil }

// Artifact implements agent.Recorder.
func (deaf) Artifact(string) error { return nil }

// at returns the start in a new folder, with another address of the model: the
// agent's folder in the sandbox is replaced by one in dir with the same files.
func (s start) at(dir, before, url string) (byHand, error) {
	home := filepath.Join(dir, "agent")
	put := strings.NewReplacer(cli.Home, home, before, url)
	h := byHand{Bundle: s.bundle, Dir: filepath.Join(dir, "app"), Stdin: s.stdin}
	if err := errors.Join(os.MkdirAll(h.Dir, 0o755), os.MkdirAll(filepath.Join(home, "tmp"), 0o755), os.MkdirAll(filepath.Join(dir, "home"), 0o755)); err != nil {
		return h, err
	}
	for path, text := range s.files {
		path = put.Replace(path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(put.Replace(text)), 0o600)); err != nil {
			return h, err
		}
	}
	for _, a := range s.argv {
		h.Argv = append(h.Argv, put.Replace(a))
	}
	h.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + filepath.Join(dir, "home")}
	for _, e := range s.env {
		h.Env = append(h.Env, put.Replace(e))
	}
	return h, nil
}
