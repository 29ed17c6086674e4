// Package uplink carries requests for models, and secrets, from the processes of
// a run on other machines to the one that has the keys: one TLS connection each.
//
// The server makes a certificate that lives as long as it does. A client knows
// its fingerprint, and shows its own token, which is good for the attempts
// that it makes and nothing else. The package decides nothing about requests: that
// is the task of the gateways at both ends. It must not write a key, a secret or a
// token to a file.
package uplink

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/cell"
)

// Client is the beginning of a connection. It implements http.RoundTripper for
// the requests of a gateway, and is safe for concurrent use.
type Client struct {
	name, token string
	where       func() Place
	http        *http.Transport
}

// NewClient makes a client with a name and a token that the server knows. where
// returns where the server is, which may change when another one takes over. It
// connects when it is used. The caller closes it.
func NewClient(name, token string, where func() Place) *Client {
	c := &Client{name: name, token: token, where: where}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	c.http = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		Protocols:      protocols, HTTP2: pings(), DisableCompression: true, MaxConnsPerHost: 1, IdleConnTimeout: time.Hour,
		WriteBufferSize: 64 << 10, // sends a conversation in few writes
	}
	return c
}

// connecting is how long one address may take to answer.
const connecting = 5 * time.Second

// dial connects to the first address that the server answers at.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	p := c.where()
	if len(p.Addresses) == 0 {
		return nil, errors.New("it is not known where it is")
	}
	var failed []string
	for _, a := range p.Addresses {
		conn, err := connect(ctx, a, p.Fingerprint)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, fmt.Sprintf("%s: %s", a, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.New(strings.Join(failed, "; "))
}

// errOther means that something else listens at an address.
var errOther = errors.New("this is not the process of the run: its certificate is another one")

// connect connects to an address where a certificate is expected.
func connect(ctx context.Context, address, expected string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, //nolint:gosec // the fingerprint is compared instead: the certificate is not signed
		VerifyConnection: func(s tls.ConnectionState) error {
			return verified(s.PeerCertificates, expected)
		},
	}}
	return d.DialContext(ctx, "tcp", address)
}

func verified(chain []*x509.Certificate, expected string) error {
	if len(chain) == 0 || !same(fingerprint(chain[0].Raw), expected) {
		return errOther
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(clientHeader, c.name)
	r.Header.Set(tokenHeader, c.token)
	return c.http.RoundTrip(r)
}

// Fetch makes secrets ask the server for their values when they are read, instead
// of this machine. Call it before any of them is read.
func (c *Client) Fetch(secrets []*cell.Secret) {
	for _, s := range secrets {
		s.Read = func() (string, error) { return c.secret(s.Label) }
	}
}

// secretTime is how long the server may take to send a secret.
const secretTime = time.Minute

func (c *Client) secret(label string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), secretTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://gateway"+secretPath, strings.NewReader(label))
	if err != nil {
		return "", err
	}
	resp, err := c.RoundTrip(r)
	if err != nil {
		return "", fmt.Errorf("%s: relay: %w", label, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxSecret))
	if err != nil {
		return "", fmt.Errorf("%s: relay: %w", label, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: relay: %s", label, strings.TrimSpace(string(b)))
	}
	return string(b), nil
}

// maxSecret is the largest size of a secret in bytes: 1 MiB.
const maxSecret = 1 << 20

// Close ends the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Place says where a server listens.
type Place struct {
	Addresses   []string `json:"addresses"`   // host:port, the ones to be tried first in front
	Fingerprint string   `json:"fingerprint"` // SHA-256 of the certificate, in hex
}

// The headers of a client, and the paths besides those of the gateway.
const (
	clientHeader = "Berth-Client" // its name
	tokenHeader  = "Berth-Token"
	secretPath   = "/secret"
)

// pings finds out within half a minute that the other machine is gone.
func pings() *http.HTTP2Config {
	return &http.HTTP2Config{
		SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
		MaxConcurrentStreams: 4096, MaxReceiveBufferPerStream: 4 << 20, MaxReceiveBufferPerConnection: 64 << 20,
	}
}

// Token makes a token for a client.
func Token() (string, error) {
	b := make([]byte, 32)
	_, err := rand.Read(b)
	return hex.EncodeToString(b), err
}

// same compares two texts in a time that says nothing about them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}
