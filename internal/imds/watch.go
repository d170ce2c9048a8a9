package imds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Rebalance is the action of a [Notice] that is only a recommendation.
const Rebalance = "rebalance"

// Notice says that the cloud takes the machine away.
type Notice struct {
	// Action is terminate, stop, hibernate or [Rebalance]: the cloud will probably take the machine away.
	Action string
	// At is when that happens, or when the recommendation was made. It may be zero.
	At time.Time
}

const (
	// every is the pause between questions. The notice of EC2 comes two minutes before the end.
	every = 5 * time.Second
	// callTimeout limits a question: the service is on the host.
	callTimeout = 2 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 4 << 10
	tokenLife = "21600" // seconds
)

// errAbsent means that the service has no such entry.
var errAbsent = errors.New("there is none")

// Watch asks the service at an address, such as http://169.254.169.254, in the form of EC2 until ctx ends or the machine is
// to end. It calls found for each new notice. A service that does not answer is asked again.
func Watch(ctx context.Context, address string, found func(Notice)) {
	watch(ctx, address, every, found)
}

func watch(ctx context.Context, address string, every time.Duration, found func(Notice)) {
	transport := &http.Transport{Proxy: nil, MaxIdleConns: 1, IdleConnTimeout: time.Minute} // no proxy reaches the service
	defer transport.CloseIdleConnections()
	s := &service{address: strings.TrimSuffix(address, "/"), client: &http.Client{
		Transport: transport, Timeout: callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	tick := time.NewTicker(every)
	defer tick.Stop()
	recommended := false
	for {
		if n, ok := interruption(s.get(ctx, "spot/instance-action")); ok {
			found(n)
			return
		}
		if !recommended {
			var n Notice
			if n, recommended = recommendation(s.get(ctx, "events/recommendations/rebalance")); recommended {
				found(n)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// interruption decodes the entry spot/instance-action. It reports false without a documented action: the entry is read
// again.
func interruption(text string, err error) (Notice, bool) {
	var action struct {
		Action string    `json:"action"`
		Time   time.Time `json:"time"`
	}
	if err != nil || json.Unmarshal([]byte(text), &action) != nil {
		return Notice{}, false
	}
	switch action.Action {
	case "terminate", "stop", "hibernate":
		return Notice{action.Action, action.Time}, true
	}
	return Notice{}, false
}

// recommendation decodes the entry events/recommendations/rebalance.
func recommendation(text string, err error) (Notice, bool) {
	var rebalance struct {
		Time *time.Time `json:"noticeTime"`
	}
	if err != nil || json.Unmarshal([]byte(text), &rebalance) != nil || rebalance.Time == nil {
		return Notice{}, false
	}
	return Notice{Rebalance, *rebalance.Time}, true
}

// service is a metadata service. Its calls need a token, except for an old service.
type service struct {
	address, token string
	client         *http.Client
}

// get reads an entry of the metadata.
func (s *service) get(ctx context.Context, entry string) (string, error) {
	for range 2 {
		if s.token == "" {
			s.token, _ = s.call(ctx, http.MethodPut, "/latest/api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", tokenLife)
		}
		text, err := s.call(ctx, http.MethodGet, "/latest/meta-data/"+entry, "X-Aws-Ec2-Metadata-Token", s.token)
		switch {
		case errors.Is(err, errToken):
			s.token = "" // it has expired
		case err != nil:
			return "", err
		default:
			return text, nil
		}
	}
	return "", errToken
}

// errToken means that the service does not accept the token.
var errToken = errors.New("the token is not accepted")

func (s *service) call(ctx context.Context, method, path, header, value string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.address+path, nil)
	if err != nil {
		return "", err
	}
	if value != "" {
		req.Header.Set(header, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusNotFound:
		return "", errAbsent
	case resp.StatusCode == http.StatusUnauthorized:
		return "", errToken
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(text), nil
}
