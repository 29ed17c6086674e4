package nodecheck

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// Relay is where the submitting end listens while the node works, as the relay of
// requests to models does.
type Relay struct {
	Addresses []string `json:"addresses"`
	Token     string   `json:"token"` // what whoever listens there answers
}

// Reached says which address the node could connect to.
type Reached struct {
	Address string `json:"address,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// connecting is how long one address may take to answer.
const connecting = 3 * time.Second

// listen answers every connection with a token, until the context ends. It returns
// the addresses of this machine that other machines may reach.
func listen(ctx context.Context) (Relay, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":0")
	if err != nil {
		return Relay{}, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return Relay{}, errors.Join(err, l.Close())
	}
	r := Relay{Token: rand.Text()}
	if host, err := os.Hostname(); err == nil {
		r.Addresses = append(r.Addresses, net.JoinHostPort(host, port))
	}
	found, _ := net.InterfaceAddrs() //nolint:errcheck // then its name has to do
	for _, a := range found {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			r.Addresses = append(r.Addresses, net.JoinHostPort(ip.IP.String(), port))
		}
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(connecting))
			_, _ = io.WriteString(c, r.Token+"\n")
			_ = c.Close()
		}
	}()
	return r, nil
}

// reach connects to the first address at which the other end answers.
func (r *Relay) reach(ctx context.Context) Reached {
	var failed []string
	for _, a := range r.Addresses[:min(len(r.Addresses), 16)] {
		err := r.answers(ctx, a)
		if err == nil {
			return Reached{Address: a}
		}
		failed = append(failed, fmt.Sprintf("%s: %v", a, err))
	}
	return Reached{Failed: strings.Join(failed, "; ")}
}

func (r *Relay) answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(connecting))
	line, err := bufio.NewReader(io.LimitReader(c, 256)).ReadString('\n')
	if err == nil && strings.TrimSpace(line) != r.Token {
		err = errors.New("another process listens there")
	}
	return err
}
