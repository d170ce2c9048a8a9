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

// ProxyConfig configures a proxy (rule C5).
type ProxyConfig struct {
	// Scheme is the protocol of the proxy: "http", "https" or "socks5". Empty means
	// "http".
	Scheme string
	// Host is the name or address of the proxy, without a port. Required.
	Host string
	// Port is the port of the proxy. Zero means the default of the scheme: 80, 443
	// or 1080.
	Port int
	// User and Password are the credentials for the proxy. Empty means none.
	User, Password string
	// NoProxy lists the destinations without a proxy, separated by commas: a host
	// with its subdomains; ".domain" for the subdomains only; an address; a network
	// such as 10.0.0.0/8; "*" for every destination. All but a network may have a
	// port. Without an entry, calls to this machine use the proxy as well.
	NoProxy string
}

// proxyFunc returns the function for http.Transport.Proxy.
func (p *ProxyConfig) proxyFunc() (func(*http.Request) (*url.URL, error), error) {
	u, err := p.url()
	if err != nil {
		return nil, err
	}
	direct, err := parseNoProxy(p.NoProxy)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (*url.URL, error) {
		if direct.matches(r.URL) {
			return nil, nil //nolint:nilnil // means no proxy
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
		return nil, errors.New("the scheme of the proxy must be http, https or socks5")
	case p.Host == "":
		return nil, errors.New("the proxy has no host")
	case strings.ContainsAny(p.Host, "/@ "):
		return nil, errors.New("the host of the proxy must be only a name or an address: scheme, user and port are separate settings")
	case p.Port < 0 || p.Port > 65535:
		return nil, fmt.Errorf("the port of the proxy is %d: it must be between 1 and 65535", p.Port)
	case p.User == "" && p.Password != "":
		return nil, errors.New("the proxy has a password but no user")
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

// noProxy is the parsed list of destinations without a proxy.
type noProxy []noProxyRule

type noProxyRule struct {
	all    bool
	net    netip.Prefix // valid for an address or a network
	domain string       // with a leading dot: matches its subdomains
	exact  bool         // the domain itself matches as well
	port   string       // empty matches any port
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
			return noProxyRule{}, fmt.Errorf("%q in the list of destinations without a proxy is not a network", entry)
		}
		return noProxyRule{net: n.Masked()}, nil
	}
	rule := noProxyRule{}
	if _, err := netip.ParseAddr(entry); err != nil { // an IPv6 address contains colons
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

// matches reports whether a URL is called without the proxy.
func (l noProxy) matches(u *url.URL) bool {
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
