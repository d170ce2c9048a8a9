package connector

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"
)

// dialer resolves names and connects, and reports both.
type dialer struct {
	report   *report
	resolver *net.Resolver
	metadata bool // whether addresses of the metadata services of clouds are permitted
	timeout  time.Duration
	phase    func(step, host string)
}

// metadataAddresses are services of clouds that give credentials to any program of a machine. Link-local addresses are
// refused besides.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
}

// isMetadata reports whether an address is link-local or belongs to a metadata service.
func isMetadata(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() {
		return true
	}
	for _, m := range metadataAddresses {
		if a == m {
			return true
		}
	}
	// Translations of IPv4 addresses: 64:ff9b::/96 and 2002::/16.
	if b := a.As16(); a.Is6() {
		if netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
			return isMetadata(netip.AddrFrom4([4]byte(b[12:])))
		}
		if netip.MustParsePrefix("2002::/16").Contains(a) {
			return isMetadata(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return false
}

// dial connects to an address of the form host:port. Proxy reports that the address belongs to the proxy.
func (d *dialer) dial(ctx context.Context, network, address string, proxy bool) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fail(stepAddress, "write the address as https://HOST or https://HOST:PORT", "the address has no host and port")
	}
	addresses, err := d.resolve(ctx, host, proxy)
	if err != nil {
		return nil, err
	}
	step := stepConnection
	if proxy {
		step = stepProxy
	}
	d.phase(step, host)
	var errs []error
	for _, a := range addresses {
		if isMetadata(a) && !d.metadata {
			return nil, fail(step, "use the address of the system itself; only connectors of the kinds aws, gcp and azure without secrets call the metadata service",
				"%s is %s, an address of this machine's link or of the metadata service of a cloud, which connectors may not use", host, a)
		}
		conn, err := (&net.Dialer{Timeout: d.timeout / time.Duration(len(addresses))}).DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			what := ""
			if proxy {
				what = "the proxy "
			}
			d.report.ok(step, "%s%s accepts connections at %s", what, host, net.JoinHostPort(a.String(), port))
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, explainDial(net.JoinHostPort(host, port), errors.Join(errs...), proxy)
}

// maxAddresses is the largest number of addresses of a name that are tried.
const maxAddresses = 4

func (d *dialer) resolve(ctx context.Context, host string, proxy bool) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	d.phase(stepName, host)
	found, err := d.resolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, explainName(host, err, proxy)
	}
	found = found[:min(len(found), maxAddresses)]
	list := make([]string, len(found))
	for i := range found {
		found[i] = found[i].Unmap()
		list[i] = found[i].String()
	}
	d.report.ok(stepName, "%s has the address %s", host, strings.Join(list, ", "))
	return found, nil
}
