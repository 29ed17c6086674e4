package podman

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-eval/berth/environments/internal/dockerapi"
	"github.com/berth-eval/berth/environments/internal/engine"
)

// apiVersion is the version of Podman's API whose requests we send. Servers from
// 4.0 on answer them.
const apiVersion = "5.8.3"

// connect returns the server behind an address.
func connect(address string) (*podman, error) {
	c, err := dockerapi.Dial(address)
	if err != nil {
		return nil, err
	}
	dial := c.API.Dialer()
	return &podman{Client: c, http: &http.Client{Transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
	}}}, nil
}

// refusal is an answer that says that a request failed.
type refusal struct {
	code    int
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Message }

// Unwrap gives the error its meaning for package engine.
func (r *refusal) Unwrap() error {
	if r.code == http.StatusNotFound {
		return engine.ErrAbsent
	}
	return nil
}

// send sends a request such as "GET /info". The caller closes the body of the answer.
func (p *podman) send(ctx context.Context, what string, query url.Values, kind string, body io.Reader) (io.ReadCloser, error) {
	method, path, _ := strings.Cut(what, " ")
	r, err := http.NewRequestWithContext(ctx, method, "http://d/v"+apiVersion+"/libpod"+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := p.http.Do(r) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < http.StatusBadRequest {
		return answer.Body, nil
	}
	defer dockerapi.Drain(answer.Body)
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	failed := &refusal{code: answer.StatusCode}
	if json.Unmarshal(text, failed) != nil || failed.Message == "" {
		failed.Message = fmt.Sprintf("%s: %s", answer.Status, bytes.TrimSpace(text))
	}
	return nil, failed
}

// call sends a request with a JSON body, or none if it is nil, and reads the answer
// into out, unless it is nil.
func (p *podman) call(ctx context.Context, what string, query url.Values, body, out any) error {
	var in io.Reader
	kind := ""
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in, kind = bytes.NewReader(text), "application/json"
	}
	answer, err := p.send(ctx, what, query, kind, in)
	if err != nil {
		return err
	}
	defer dockerapi.Drain(answer)
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("read the answer of podman to %s: %w", what, err)
	}
	return nil
}
