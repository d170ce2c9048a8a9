package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ProxyConfig is an explicit proxy (SPEC C5).
type ProxyConfig struct {
	// Scheme is "http", "https" or "socks5": how to talk to the proxy itself.
	// Empty means "http".
	Scheme string
	// Host is the proxy's name or address, without a port. Required.
	Host string
	// Port is the proxy's. Zero means the scheme's own: 80, 443, 1080.
	Port int
	// User and Password are the proxy's credentials; empty means none.
	User, Password string
	// NoProxy lists what is called directly, separated by commas: a host, which
	// includes its sub-domains; ".domain" for the sub-domains alone; an address;
	// a network such as 10.0.0.0/8; any of them but a network with a port; "*"
	// for everything. Nothing is called directly unless it is listed, not even
	// this machine.
	NoProxy string
}

// function is the proxy as http.Transport wants it.
func (p *ProxyConfig) function() (func(*http.Request) (*url.URL, error), error) {
	u, err := p.url()
	if err != nil {
		return nil, err
	}
	direct, err := parseNoProxy(p.NoProxy)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (*url.URL, error) {
		if direct.match(r.URL) {
			return nil, nil //nolint:nilnil // net/http: no proxy
		}
		return u, nil
	}, nil
}

func (p *ProxyConfig) url() (*url.URL, error) {
	ports := map[string]int{"http": 80, "https": 443, "socks5": 1080}
	scheme := strings.ToLower(p.Scheme)
	setDefault(&scheme, "http")
	port, ok := ports[scheme]
	switch {
	case !ok:
		return nil, errors.New("the proxy's scheme must be http, https or socks5")
	case p.Host == "":
		return nil, errors.New("the proxy has no host")
	case strings.ContainsAny(p.Host, "/@ "):
		return nil, errors.New("the proxy's host must be a name or an address alone: its scheme, user and port have settings of their own")
	case p.Port < 0 || p.Port > 65535:
		return nil, fmt.Errorf("the proxy's port is %d: it must be between 1 and 65535", p.Port)
	case p.User == "" && p.Password != "":
		return nil, errors.New("the proxy has a password and no user")
	}
	if p.Port != 0 {
		port = p.Port
	}
	u := &url.URL{Scheme: scheme, Host: net.JoinHostPort(strings.Trim(p.Host, "[]"), strconv.Itoa(port))}
	if p.User != "" {
		u.User = url.UserPassword(p.User, p.Password)
	}
	return u, nil
}

// noProxy is a parsed list of what is called directly.
type noProxy []noProxyRule

type noProxyRule struct {
	all    bool
	net    netip.Prefix // valid: an address or a network
	domain string       // begins with a dot: sub-domains
	exact  bool         // the domain itself too
	port   string       // empty: any
}

func parseNoProxy(list string) (noProxy, error) {
	var rules noProxy
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if entry == "" {
			continue
		}
		rule, err := parseNoProxyRule(entry)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func parseNoProxyRule(entry string) (noProxyRule, error) {
	if entry == "*" {
		return noProxyRule{all: true}, nil
	}
	if strings.Contains(entry, "/") {
		n, err := netip.ParsePrefix(entry)
		if err != nil {
			return noProxyRule{}, fmt.Errorf("%q in the list of what needs no proxy is not a network", entry)
		}
		return noProxyRule{net: n.Masked()}, nil
	}
	rule := noProxyRule{}
	if _, err := netip.ParseAddr(entry); err != nil { // an IPv6 address is full of colons
		if host, port, err := net.SplitHostPort(entry); err == nil {
			entry, rule.port = host, port
		}
	}
	if a, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		rule.net = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		return rule, nil
	}
	entry = strings.TrimPrefix(entry, "*")
	rule.exact = !strings.HasPrefix(entry, ".")
	rule.domain = "." + strings.TrimPrefix(entry, ".")
	return rule, nil
}

// match tells whether a URL is called directly.
func (l noProxy) match(u *url.URL) bool {
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addr, err := netip.ParseAddr(host)
	isAddr := err == nil
	return slices.ContainsFunc(l, func(r noProxyRule) bool {
		switch {
		case r.all:
			return true
		case r.port != "" && r.port != port:
			return false
		case isAddr:
			return r.net.IsValid() && r.net.Contains(addr.Unmap())
		case r.domain == "":
			return false
		}
		return strings.HasSuffix(host, r.domain) || r.exact && "."+host == r.domain
	})
}
