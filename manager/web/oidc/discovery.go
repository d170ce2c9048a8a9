package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/sync/singleflight"
)

const (
	// maxAnswer bounds an answer of the service.
	maxAnswer = 1 << 20
	// refresh is the time after which the service is asked for its addresses again. New keys are read when a token needs
	// them.
	refresh = time.Hour
	// pause is the time after a failure in which the service is not asked again.
	pause = 2 * time.Second
)

// service is the metadata that a service publishes.
type service struct {
	*oidc.Provider
	endSession  string
	userInfo    bool
	namesItself bool // its answers have the parameter iss
	authMethods []string
}

// discovery asks the service for its addresses when a sign-in needs them, and remembers them.
type discovery struct {
	issuer string
	client *http.Client
	calls  singleflight.Group

	mu     sync.Mutex
	known  *service
	failed error
	until  time.Time
}

func (d *discovery) service(ctx context.Context) (*service, error) {
	d.mu.Lock()
	known, failed, until := d.known, d.failed, d.until
	d.mu.Unlock()
	if time.Now().Before(until) {
		return known, failed
	}
	got, err, _ := d.calls.Do("", func() (any, error) {
		s, err := d.discover(context.WithoutCancel(ctx)) // others may wait for the same call, which the client bounds
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case err == nil:
			d.known, d.failed, d.until = s, nil, time.Now().Add(refresh)
		case d.known != nil: // the previous answer is better than none
			d.until = time.Now().Add(pause)
		default:
			d.failed, d.until = err, time.Now().Add(pause)
		}
		return d.known, d.failed
	})
	if err != nil {
		return nil, err
	}
	return got.(*service), nil //nolint:forcetypeassert // the function returns one
}

func (d *discovery) discover(ctx context.Context) (*service, error) {
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, d.client), d.issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		Authorization string `json:"authorization_endpoint"`
		Token         string `json:"token_endpoint"`
		Keys          string `json:"jwks_uri"`
		UserInfo      string `json:"userinfo_endpoint"`
		EndSession    string `json:"end_session_endpoint"`
		NamesItself   bool   `json:"authorization_response_iss_parameter_supported"`

		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&more); err != nil {
		return nil, err
	}
	for name, address := range map[string]string{"authorization_endpoint": more.Authorization, "token_endpoint": more.Token, "jwks_uri": more.Keys} {
		if err := checkAddress(name, address); err != nil {
			return nil, err
		}
	}
	for name, address := range map[string]string{"userinfo_endpoint": more.UserInfo, "end_session_endpoint": more.EndSession} {
		if address == "" {
			continue
		}
		if err := checkAddress(name, address); err != nil {
			return nil, err
		}
	}
	return &service{Provider: p, endSession: more.EndSession, userInfo: more.UserInfo != "", namesItself: more.NamesItself, authMethods: more.AuthMethods}, nil
}

// bounded is a transport whose answers end with an error above maxAnswer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{ReadCloser: answer.Body, left: maxAnswer}
	}
	return answer, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

var errTooLarge = errors.New("the answer is larger than " + fmt.Sprint(maxAnswer) + " bytes")

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
