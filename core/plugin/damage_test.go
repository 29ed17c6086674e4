package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
)

// What happens to a host that starts plugins with the defaults of go-plugin.
// For each of these faults a test in fault_test.go shows that our host does not
// have it.

// playNaive is such a host: it sends one message to a plugin, prints "pid N",
// and then the answer.
func playNaive() {
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: plugins.CookieKey, MagicCookieValue: plugins.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{plugins.Protocol: {plugins.SetName: &dispenser{}}},
		Cmd:              exec.CommandContext(context.Background(), programOf(os.Getenv("ODD_DIR"), "odd")),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Output: os.Stderr}),
	})
	if err := naive(client, os.Getenv("ODD_SAY")); err != nil {
		fmt.Fprintln(os.Stdout, "failed:", err)
	}
	if os.Getenv("ODD_STAY") != "" {
		select {}
	}
	client.Kill()
}

func naive(client *goplugin.Client, say string) error {
	protocol, err := client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(plugins.SetName)
	if err != nil {
		return err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return fmt.Errorf("dispensed a %T", raw)
	}
	ctx := context.Background()
	s, err := agent.NewClient(fault.Client(conn), "odd").Open(ctx, agent.Setup{Role: agent.RoleAgent})
	if err != nil {
		return err
	}
	pid, err := s.Turn(ctx, agent.Message{Text: "pid"}, &notes{})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "pid", pid.ExitCode)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	y, err := s.Turn(short, agent.Message{Text: say}, &notes{})
	if err != nil && say == "die" { // a trial that does not know about it comes next
		time.Sleep(time.Second) // time for something to start the plugin again
		_, err = agent.NewClient(fault.Client(conn), "odd").Open(ctx, agent.Setup{Role: agent.RoleAgent})
	}
	if err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // time for stderr to have its effect
	fmt.Fprintln(os.Stdout, y.Message)
	return nil
}

// naiveHost starts such a host, and returns what it prints after the PID of its
// plugin.
func naiveHost(t *testing.T, say string, stay bool) (cmd *exec.Cmd, plugin int, out *bufio.Reader, stderr *journal) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr = &journal{}
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), roleKey+"=naive", "ODD_DIR="+write(t, "odd", "odd"), "ODD_SAY="+say, "ODD_API_KEY=sesame")
	if stay {
		cmd.Env = append(cmd.Env, "ODD_STAY=yes")
	}
	cmd.Stderr = stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out = bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	if _, bad := fmt.Sscanf(line, "pid %d", &plugin); err != nil || bad != nil {
		t.Fatalf("the host says %q: %v\n%s", line, errors.Join(err, bad), stderr)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(plugin, syscall.SIGKILL)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, plugin, out, stderr
}

func TestDamageOneLineOfStderrEndsTheHost(t *testing.T) {
	t.Parallel()
	cmd, _, out, stderr := naiveHost(t, `stderr {"@message":1}`, false)
	_, _ = out.ReadString(0)
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), "panic: interface conversion") {
		t.Errorf("the host ended with %v:\n%s", err, stderr)
	}
}

func TestDamageSecretsAreInherited(t *testing.T) {
	t.Parallel()
	_, _, out, _ := naiveHost(t, "environment", false)
	if text, _ := out.ReadString(0); !strings.Contains(text, "ODD_API_KEY=sesame") {
		t.Errorf("the secret did not get to the plugin:\n%s", text)
	}
}

func TestDamageALongLineOnStdoutStopsThePlugin(t *testing.T) {
	t.Parallel()
	_, _, out, _ := naiveHost(t, "stdout", false)
	if text, _ := out.ReadString('\n'); !strings.Contains(text, "deadline exceeded") {
		t.Errorf("the call ended with %q, want that it never ends", text)
	}
}

func TestDamageAKilledHostLeavesItsPlugin(t *testing.T) {
	t.Parallel()
	cmd, pid, _, _ := naiveHost(t, "nothing", true)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	time.Sleep(300 * time.Millisecond) // nothing tells that a process does not end
	if !alive(pid) {
		t.Error("the plugin ended with its host")
	}
}

func TestDamageAPluginThatDiesTakesTheNextTrialWithIt(t *testing.T) {
	t.Parallel()
	_, pid, out, _ := naiveHost(t, "die", false)
	if text, _ := out.ReadString('\n'); !strings.Contains(text, "failed:") || alive(pid) {
		t.Errorf("the plugin is dead: %v; the next call after that ended with %q, want that it failed", !alive(pid), text)
	}
}
