package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/delegate-io/dlite/internal/retryafter"
)

// The signals of OTLP, as the names of variables and the paths of URLs spell them.
const (
	tracesSignal = "traces"
	logsSignal   = "logs"
)

// sender posts the messages of one signal to a collector, by OTLP over HTTP. The
// library's own exporters would bring gRPC along, which neither program uses.
type sender struct {
	url      string
	headers  map[string]string
	compress bool
	timeout  time.Duration // of one attempt
	retryFor time.Duration
	client   *http.Client
}

// variable returns the value of the signal's variable OTEL_EXPORTER_OTLP_<SIGNAL>_name,
// or else of OTEL_EXPORTER_OTLP_name.
func variable(signal, name string) string {
	return firstSet("OTEL_EXPORTER_OTLP_"+strings.ToUpper(signal)+"_"+name, "OTEL_EXPORTER_OTLP_"+name)
}

// firstSet returns the value of the first of the variables that is set.
func firstSet(names ...string) string {
	for _, n := range names {
		if v := strings.TrimSpace(os.Getenv(n)); v != "" {
			return v
		}
	}
	return ""
}

// newSender reads the variables that OpenTelemetry defines for its exporters. endpoint
// wins over them. Its errors name the variable that is wrong, and show no header.
func newSender(signal, endpoint string, retryFor time.Duration) (*sender, error) {
	s := &sender{timeout: 10 * time.Second, retryFor: retryFor, headers: map[string]string{}}
	var err error
	if s.url, err = endpointOf(signal, endpoint); err != nil {
		return nil, err
	}
	for pair := range strings.SplitSeq(variable(signal, "HEADERS"), ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, text, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(text))
		if !ok || err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: it must be name=value,name=value, with values percent-encoded")
		}
		s.headers[strings.TrimSpace(name)] = value
	}
	if text := variable(signal, "TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return nil, errors.New("OTEL_EXPORTER_OTLP_TIMEOUT: it must be a number of milliseconds above 0")
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	switch text := variable(signal, "COMPRESSION"); text {
	case "", "none":
	case "gzip":
		s.compress = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION: %q: it must be gzip or none", text)
	}
	config, err := tlsOf(signal)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// endpointOf returns the URL of a signal. The variable of the signal is the whole URL;
// the signal's path is appended to the common one.
func endpointOf(signal, endpoint string) (string, error) {
	own := cmp.Or(endpoint, firstSet("OTEL_EXPORTER_OTLP_"+strings.ToUpper(signal)+"_ENDPOINT"))
	text := own
	if own == "" {
		text = strings.TrimRight(cmp.Or(firstSet("OTEL_EXPORTER_OTLP_ENDPOINT"), "https://localhost:4318"), "/") + "/v1/" + signal
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: it must be a URL such as https://collector:4318")
	}
	return u.String(), nil
}

func tlsOf(signal string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := variable(signal, "CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM", file)
		}
	}
	cert, key := variable(signal, "CLIENT_CERTIFICATE"), variable(signal, "CLIENT_KEY")
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// send delivers a message. It tries again, with back-off, while the collector is away
// or overloaded, for as long as retryFor and ctx allow.
func (s *sender) send(ctx context.Context, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	if s.compress {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body) // a buffer does not fail
		_ = w.Close()
		body = packed.Bytes()
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 500*time.Millisecond, 10*time.Second
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, s.post(ctx, body) },
		backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(s.retryFor))
	return err
}

// post makes one attempt. An error that another attempt would repeat is permanent.
func (s *sender) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if s.compress {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("reach the collector: %w", err)
	}
	defer resp.Body.Close()                                   //nolint:errcheck // read to its end
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // a success counts without its text
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if pause := retryafter.Parse(resp.Header, time.Now()); pause > 0 {
			return fmt.Errorf("the collector answers %s: %w", resp.Status, &backoff.RetryAfterError{Duration: pause})
		}
		return fmt.Errorf("the collector answers %s", resp.Status)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return backoff.Permanent(fmt.Errorf("the collector answers %s", resp.Status))
	}
	if err := rejected(answer); err != nil {
		return backoff.Permanent(err)
	}
	return nil
}

// rejected returns an error if an answer says that the collector took a part only. The
// answers of all signals have the same form: field 1 has a count and a message.
func rejected(answer []byte) error {
	partial := protoField(answer, 1)
	if n, _ := protowire.ConsumeVarint(protoField(partial, 1)); n > 0 {
		text, _ := protowire.ConsumeBytes(protoField(partial, 2))
		return fmt.Errorf("the collector rejected %d: %s", n, text)
	}
	return nil
}

// protoField returns the encoded value of a field, or nil. A message is returned without
// its length.
func protoField(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		n, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(n, typ, message[tag:])
		if size < 0 {
			return nil
		}
		value := message[tag : tag+size]
		if n == number {
			if number == 1 && typ == protowire.BytesType {
				value, _ = protowire.ConsumeBytes(value)
			}
			return value
		}
		message = message[tag+size:]
	}
	return nil
}

func (s *sender) close() { s.client.CloseIdleConnections() }
