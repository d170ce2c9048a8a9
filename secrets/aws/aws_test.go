package aws_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/aws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hush      = "hush-hush"
	keyID     = "NOT-A-REAL-KEY-ID"
	secretKey = "not-a-real-secret-key"
)

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signed checks the signature of a request (AWS Signature Version 4). It returns the
// region in the signature.
func signed(r *http.Request, body []byte) (region string, ok bool) {
	auth, isV4 := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	parts := map[string]string{}
	for _, p := range strings.Split(auth, ",") {
		name, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		parts[name] = v
	}
	scope := strings.Split(parts["Credential"], "/")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if !isV4 || err != nil || time.Since(at).Abs() > 5*time.Minute || len(scope) != 5 || scope[0] != keyID || scope[3] != "secretsmanager" {
		return "", false
	}
	sum := sha256.Sum256(body)
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n"
	for _, h := range strings.Split(parts["SignedHeaders"], ";") {
		v := strings.Join(r.Header.Values(h), ",")
		switch h {
		case "host":
			v = r.Host
		case "content-length":
			v = r.Header.Get("Content-Length")
		}
		canonical += h + ":" + strings.TrimSpace(v) + "\n"
	}
	canonical += "\n" + parts["SignedHeaders"] + "\n" + hex.EncodeToString(sum[:])
	hashed := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + secretKey)
	for _, part := range scope[1:] {
		key = mac(key, part)
	}
	want := mac(key, "AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+strings.Join(scope[1:], "/")+"\n"+hex.EncodeToString(hashed[:]))
	return scope[2], hmac.Equal([]byte(hex.EncodeToString(want)), []byte(parts["Signature"]))
}

// service answers GetSecretValue as the API reference describes it.
func service(t *testing.T) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.ContentLength >= 0 {
			r.Header.Set("Content-Length", r.Header.Get("Content-Length"))
		}
		fail := func(status int, code, message string) {
			w.Header().Set("X-Amzn-ErrorType", code)
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
		}
		r.Header.Set("Content-Length", itoa(len(body)))
		region, ok := signed(r, body)
		var in struct{ SecretId, VersionId, VersionStage string }
		if !ok {
			fail(403, "InvalidSignatureException", "The request signature we calculated does not match")
			return
		}
		if r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue" || r.Method != http.MethodPost || json.Unmarshal(body, &in) != nil {
			fail(400, "InvalidRequestException", "not a request")
			return
		}
		answer := map[string]any{"Name": in.SecretId, "VersionId": "v"}
		switch in.SecretId {
		case "prod/db":
			answer["SecretString"] = `{"password":"` + hush + `","region":"` + region + `","stage":"` + in.VersionStage + in.VersionId + `"}`
		case "binary":
			answer["SecretBinary"] = []byte("\xff\x00binary")
		case "denied":
			fail(400, "AccessDeniedException", "User: arn:aws:iam::1:user/ci is not authorized")
			return
		case "garbage":
			_, _ = io.WriteString(w, `{"SecretString":"`+hush)
			return
		case "hang":
			<-r.Context().Done()
			return
		default:
			fail(400, "ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(srv.Close)
	return srv
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func open(t *testing.T, key string) *aws.Provider {
	t.Helper()
	p, err := aws.New(t.Context(), aws.Config{
		Region: "eu-central-1", Endpoint: service(t).URL, Credentials: credentials.NewStaticCredentialsProvider(keyID, key, ""),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func fetch(ctx context.Context, t *testing.T, p secrets.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(ctx, u)
}

// Rule S1. The service checks that requests are signed for their region.
func TestFetchReturnsSecrets(t *testing.T) {
	t.Parallel()
	p := open(t, secretKey)
	for ref, want := range map[string]string{
		"aws-sm:///prod/db#password": hush, "aws-sm:///prod/db#region": "eu-central-1", "aws-sm://us-east-1/prod/db#region": "us-east-1",
		"aws-sm:///prod/db?stage=AWSPREVIOUS#stage": "AWSPREVIOUS", "aws-sm:///prod/db?version=v-1#stage": "v-1", "aws-sm:///binary": "\xff\x00binary",
	} {
		v, err := fetch(t.Context(), t, p, ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, v, ref)
	}
}

func TestErrorsNameTheReasonAndShowNoValue(t *testing.T) {
	t.Parallel()
	p := open(t, secretKey)
	for ref, want := range map[string]string{
		"aws-sm:///none": "there is no such secret", "aws-sm:///prod/db#none": `no field "none"`, "aws-sm:///denied": "the service answered AccessDeniedException: User",
		"aws-sm:///garbage": "the service's answer cannot be read", "aws-sm://": "must be of the form", "aws-sm://evil.example/x": "must be of the form",
		"aws-sm:///x?y=1": "the parameters stage and version",
	} {
		_, err := fetch(t.Context(), t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.NotContains(t, err.Error(), hush, ref)
	}
	_, err := fetch(t.Context(), t, open(t, "wrong"), "aws-sm:///prod/db")
	require.ErrorContains(t, err, "InvalidSignatureException")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = fetch(ctx, t, p, "aws-sm:///hang")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
