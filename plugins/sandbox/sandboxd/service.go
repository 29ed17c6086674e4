package sandboxd

import (
	"context"
	"fmt"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pipe"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/ring"
)

// service is a program of the task: the image's entrypoint or a daemon. It
// never counts as left by the agent.
type service struct {
	name   string
	spec   *pb.ExecStart
	output *ring.Ring // of all its runs

	// Guarded by daemon.mu.
	command *command // the last run
	altered []string // its files that changed after Mark
}

const (
	serviceOutput = 64 << 10 // bytes
	maxServices   = 256
)

// StartService starts a service that does not exist yet or has ended.
func (c *control) StartService(_ context.Context, q *pb.StartServiceRequest) (*pb.StartServiceReply, error) {
	spec := q.GetCommand()
	if q.GetName() == "" || spec == nil {
		return nil, fmt.Errorf("%w: a service needs a name and a command", fault.ErrInvalid)
	}
	if spec.GetId() != "" || spec.GetStdin() || spec.GetKeep() || spec.GetTimeoutMs() != 0 {
		return nil, fmt.Errorf("%w: a service's command has no id, stdin, keep or timeout", fault.ErrInvalid)
	}
	d := c.d
	d.mu.Lock()
	var s *service
	for _, known := range d.services {
		if known.name == q.GetName() {
			s = known
		}
	}
	if s == nil {
		if len(d.services) >= maxServices {
			d.mu.Unlock()
			return nil, fmt.Errorf("%w: %d services", fault.ErrNoRoom, maxServices)
		}
		s = &service{name: q.GetName(), output: ring.New(serviceOutput)}
		d.services = append(d.services, s)
	}
	running := s.command != nil && !s.command.over()
	if !running {
		s.spec = spec
	}
	d.mu.Unlock()
	if running {
		return nil, fmt.Errorf("%w: service %q runs", fault.ErrExists, s.name)
	}
	if err := d.run(s); err != nil {
		return nil, err
	}
	return &pb.StartServiceReply{Pid: int64(s.command.process.PID)}, nil
}

// run starts s. The core calls it one at a time.
func (d *daemon) run(s *service) error {
	p, err := prepare(s.spec, defaults{dir: "/"})
	if err != nil {
		return err
	}
	fds, err := pipe.Open([3]bool{false, true, false})
	if err != nil {
		return err
	}
	c := &command{
		service: s.name, started: make(chan struct{}), done: make(chan struct{}),
		stdout: s.output, stderr: ring.New(0), stdin: &pipe.Input{},
	}
	// Both outputs go into one pipe.
	files := fds.Files()
	files[2] = files[1]
	if err = d.start(c, p, files); err != nil {
		fds.Close()
		return err
	}
	go d.tend(c, &pipe.Output{File: fds.Take(1, "service")}, nil)
	fds.Close()
	d.mu.Lock()
	s.command = c
	d.mu.Unlock()
	return nil
}

// RestartServices starts the services that have ended and whose files are
// unchanged.
func (c *control) RestartServices(context.Context, *pb.RestartServicesRequest) (*pb.RestartServicesReply, error) {
	d, reply := c.d, &pb.RestartServicesReply{}
	d.mu.Lock()
	var down []*service
	for _, s := range d.services {
		if s.command == nil || s.command.over() {
			down = append(down, s)
		}
	}
	d.mu.Unlock()
	for _, s := range down {
		if files := d.altered(s); len(files) > 0 {
			reply.Changed = append(reply.Changed, &pb.ServiceChange{Name: s.name, Files: wire.Bytes(files)})
			continue
		}
		if err := d.run(s); err != nil {
			return nil, fmt.Errorf("service %q: %w", s.name, err)
		}
		reply.Started = append(reply.Started, s.name)
	}
	return reply, nil
}

// Services returns the state of each service.
func (c *control) Services(context.Context, *pb.ServicesRequest) (*pb.ServicesReply, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	reply := &pb.ServicesReply{}
	for _, s := range c.d.services {
		m := &pb.ServicesReply_Service{Name: s.name, Output: s.output.Bytes()}
		switch {
		case s.command == nil:
		case s.command.over():
			m.Exit = s.command.exit()
		default:
			m.Pid = int64(s.command.process.PID)
		}
		reply.Services = append(reply.Services, m)
	}
	return reply, nil
}
