package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// Provider is the origin of webhooks.
type Provider string

// The providers. A custom webhook is a call by any program.
const (
	GitHub    Provider = "github"
	GitLab    Provider = "gitlab"
	Gitea     Provider = "gitea"
	Bitbucket Provider = "bitbucket"
	Custom    Provider = "custom"
)

// Providers lists the providers.
func Providers() []Provider { return []Provider{GitHub, GitLab, Gitea, Bitbucket, Custom} }

// proof returns the header that proves the origin, and whether it is the secret itself.
func (p Provider) proof() (header string, shared bool) {
	switch p {
	case GitHub:
		return "X-Hub-Signature-256", false
	case Gitea:
		return "X-Gitea-Signature", false
	case Bitbucket:
		return "X-Hub-Signature", false
	case GitLab:
		return "X-Gitlab-Token", true
	}
	return "X-Trigger-Token", true
}

// Signed reports whether a request has a header that may prove its origin.
func Signed(header http.Header) bool {
	return slices.ContainsFunc(Providers(), func(p Provider) bool {
		name, _ := p.proof()
		return header.Get(name) != ""
	})
}

// Verify reports whether a request comes from the owner of the secret. It takes the same time for each wrong proof.
// A request with several proofs is not valid.
func Verify(p Provider, secret []byte, header http.Header, body []byte) bool {
	name, shared := p.proof()
	proofs := header.Values(name)
	if len(proofs) != 1 || len(secret) == 0 {
		return false
	}
	if shared {
		given, want := sha256.Sum256([]byte(proofs[0])), sha256.Sum256(secret)
		return subtle.ConstantTimeCompare(given[:], want[:]) == 1
	}
	text, ok := strings.CutPrefix(proofs[0], "sha256=")
	if p != Gitea && !ok {
		return false
	}
	given, err := hex.DecodeString(text)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(body) // documented to never fail
	return hmac.Equal(given, mac.Sum(nil))
}

// Names returns the names of a delivery. A delivery with a name that was seen before is a repetition. Providers that
// sign the body do not sign the id of a delivery, so the body has a name too.
func Names(p Provider, header http.Header, body []byte) []string {
	var names []string
	id := map[Provider]string{
		GitHub: "X-GitHub-Delivery", GitLab: "X-Gitlab-Event-UUID", Gitea: "X-Gitea-Delivery", Bitbucket: "X-Request-UUID", Custom: "X-Delivery-Id",
	}[p]
	if value := header.Get(id); value != "" {
		names = append(names, "id:"+digest([]byte(value)))
	}
	if _, shared := p.proof(); !shared {
		names = append(names, "body:"+digest(body))
	}
	return names
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Headers returns the headers that expressions may read, without those that prove an origin. Each header has its
// usual spelling, lower case, and the spelling of its provider.
func Headers(header http.Header) map[string]any {
	const most, mostText = 64, 4096
	values := map[string]any{}
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), most)] {
		value := header.Get(name)
		if private(name) || len(value) > mostText {
			continue
		}
		value = strings.ToValidUTF8(value, "\uFFFD")
		values[name], values[strings.ToLower(name)] = value, value
		if rest, ok := strings.CutPrefix(name, "X-Github-"); ok {
			values["X-GitHub-"+rest] = value
		}
		if rest, ok := strings.CutPrefix(name, "X-Gitlab-"); ok {
			values["X-GitLab-"+rest] = value
		}
	}
	return values
}

// private reports whether a header may contain a secret or a signature.
func private(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"authorization", "cookie", "token", "signature", "secret", "key", "password"} {
		if strings.Contains(name, word) && name != "x-event-key" {
			return true
		}
	}
	return false
}
