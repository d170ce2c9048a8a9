package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// servers are the addresses of servers that can serve the same calls.
type servers struct {
	all []*url.URL

	mu      sync.Mutex
	current int // index of the address that answered last
}

// newServers parses addresses from the setting with the name.
func newServers(name string, texts ...string) (*servers, error) {
	s := &servers{}
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("the %s of the client is not the address of a manager: it must be like https://manager.example.com", name)
		}
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
		s.all = append(s.all, u)
	}
	return s, nil
}

// servers returns the servers of a call.
func (c *Client) servers(what *call) *servers {
	if what.logs {
		return c.logs
	}
	return c.managers
}

// get returns the current address.
func (s *servers) get() *url.URL {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[s.current]
}

// leave makes the address after a failed one the current one, unless another call has done so.
func (s *servers) leave(failed *url.URL) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[s.current] == failed {
		s.current = (s.current + 1) % len(s.all)
	}
}

// answered reports whether an error is a refusal that another manager of the store would repeat.
func answered(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && !refused.Foreign && refused.Status < http.StatusInternalServerError
}
