package uplink

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/cell"
)

// Gateway is the gateway that has the keys.
type Gateway interface {
	Forward(w http.ResponseWriter, r *http.Request, may func(trial string, attempt int) error)
}

// Options are the options of a server.
type Options struct {
	// Address is where to listen, host:port or host. Empty: all addresses of the
	// machine, and a port that is free.
	Address string
	Gateway Gateway
	// Token returns the token of a client. It may wait until a file that has it can
	// be seen.
	Token func(ctx context.Context, client string) (string, error)
	// Makes returns why a client may not send requests for an attempt, or nil. It
	// may wait until it can be seen that the client makes it.
	Makes func(ctx context.Context, client, trial string, attempt int) error
	// Secrets are what clients may ask for by its label.
	Secrets []*cell.Secret
}

// Server is the end of the connections. It is safe for concurrent use.
type Server struct {
	o       Options
	place   Place
	http    *http.Server
	done    chan struct{}
	secrets map[string][]*cell.Secret // by label
}

// certificateTime is how long a certificate is valid, and the tolerance for clocks
// that differ: clients compare nothing but the fingerprint.
const certificateTime = 10 * 365 * 24 * time.Hour

// Listen starts a server. The caller closes it.
func Listen(ctx context.Context, o Options) (*Server, error) {
	address := o.Address
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "0")
	}
	cert, err := certificate()
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("relay: %w: choose another address with --relay-address", err)
	}
	s := &Server{o: o, done: make(chan struct{}), secrets: map[string][]*cell.Secret{}}
	for _, one := range o.Secrets {
		s.secrets[one.Label] = append(s.secrets[one.Label], one)
	}
	s.place = Place{Addresses: addresses(l.Addr()), Fingerprint: fingerprint(cert.Certificate[0])}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 1 << 20, HTTP2: pings(), Protocols: protocols,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // clients that go away are not worth logging
	}
	go func() {
		defer close(s.done)
		_ = s.http.ServeTLS(l, "", "") // ends with Close, with an error that says so
	}()
	return s, nil
}

// certificate makes a certificate, whose key is only in memory.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "berth"}, DNSNames: []string{"berth"},
		NotBefore: now.Add(-certificateTime), NotAfter: now.Add(certificateTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// addresses returns by which addresses a listener can be reached: the name of the
// machine, its addresses, and last the loopback ones.
func addresses(l net.Addr) (all []string) {
	at, ok := l.(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return []string{l.String()}
	}
	_, port, _ := net.SplitHostPort(l.String()) //nolint:errcheck // a listener has a port
	add := func(host string) {
		if a := net.JoinHostPort(host, port); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	found, _ := net.InterfaceAddrs() //nolint:errcheck // then its name has to do
	for _, loopback := range []bool{false, true} {
		for _, a := range found {
			n, ok := a.(*net.IPNet)
			if ok && n.IP.IsLoopback() == loopback && !n.IP.IsLinkLocalUnicast() {
				add(n.IP.String())
			}
		}
		if name, err := os.Hostname(); err == nil && !loopback {
			add(name)
		}
	}
	return all
}

// Place returns where the server listens.
func (s *Server) Place() Place { return s.place }

// Close ends all connections, and waits until the server has ended.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// unknown is the time that a client waits in vain whose token is not the right one.
const unknown = 200 * time.Millisecond

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	name, shown := r.Header.Get(clientHeader), r.Header.Get(tokenHeader)
	r.Header.Del(clientHeader)
	r.Header.Del(tokenHeader)
	token, err := s.o.Token(r.Context(), name)
	if err != nil || token == "" || !same(token, shown) {
		time.Sleep(unknown)
		http.Error(w, "this token is not known here", http.StatusUnauthorized)
		return
	}
	if r.URL.Path == secretPath {
		s.secret(w, r)
		return
	}
	ctx := r.Context()
	s.o.Gateway.Forward(w, r, func(trial string, attempt int) error { return s.o.Makes(ctx, name, trial, attempt) }) //nolint:contextcheck // it is the request's
}

// errManySecrets says that a label does not tell which secret is meant.
var errManySecrets = errors.New("several secrets of the experiment are written alike and differ: give each another name with locals")

// secret answers a request for a secret.
func (s *Server) secret(w http.ResponseWriter, r *http.Request) {
	label, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	known := s.secrets[string(label)]
	if err != nil || len(known) == 0 {
		http.Error(w, "the experiment has no such secret for other machines", http.StatusNotFound)
		return
	}
	value, err := known[0].Read()
	for _, other := range known[1:] {
		second, late := other.Read()
		if err = errors.Join(err, late); err == nil && second != value {
			err = errManySecrets
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, value) // the client may be gone
}
