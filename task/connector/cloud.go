package connector

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// post sends a form.
func (p *probe) post(ctx context.Context, u *url.URL, form url.Values) (*answer, *failure) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fail(stepAddress, "correct the address of the connector", "the address is not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return p.send(ctx, req)
}

// postJSON sends a value as JSON.
func (p *probe) postJSON(ctx context.Context, u *url.URL, v any, prepare func(*http.Request)) (*answer, *failure) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fail(stepAddress, "correct the options of the connector", "the request cannot be encoded")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fail(stepAddress, "correct the address of the connector", "the address is not a URL")
	}
	req.Header.Set("Content-Type", "application/json")
	if prepare != nil {
		prepare(req)
	}
	return p.send(ctx, req)
}

// serviceAccount is the key file of a service account of Google.
type serviceAccount struct {
	Email      string `json:"client_email"`
	PrivateKey string `json:"private_key"`
	KeyID      string `json:"private_key_id"`
	TokenURI   string `json:"token_uri"`
	Project    string `json:"project_id"`
}

// testGCP gets an access token and asks what it may do in the project.
func testGCP(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	token, project, f := p.tokenOfGoogle(ctx)
	if f != nil {
		return f
	}
	p.set.Add(token)
	if project = cmp.Or(p.option(optionProject), project); project == "" {
		return nil
	}
	permission := "resourcemanager.projects.get"
	resource := at(u, "v1", "projects", project)
	resource.Path, resource.RawPath = resource.Path+":testIamPermissions", ""
	a, f := p.postJSON(ctx, resource, map[string]any{"permissions": []string{permission}}, bearer(token))
	if f != nil {
		return f
	}
	about := subject{server: "Google Cloud at " + u.Host, credential: "the token", resource: "the project " + project, right: "a role in the project, and enable the Cloud Resource Manager API"}
	if f := explainStatus(a, about); f != nil {
		return f
	}
	if !strings.Contains(string(a.body), permission) {
		return fail(stepPermission, "give the account a role in the project, such as roles/browser", "the account has no permission %s in the project %s", permission, project)
	}
	p.report.ok(stepPermission, "the account has a role in the project %s", project)
	return nil
}

// tokenOfGoogle returns a token for the key file, or for the account of the machine.
func (p *probe) tokenOfGoogle(ctx context.Context) (token, project string, f *failure) {
	if p.secret(secretKey) == "" {
		const remedy = "set the secret key to the key file of a service account, or give the delegate's machine one"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, instanceService+"/computeMetadata/v1/instance/service-accounts/default/token", http.NoBody)
		if err != nil {
			return "", "", fail(stepAuthentication, remedy, "the address of the metadata service is not valid")
		}
		req.Header.Set("Metadata-Flavor", "Google")
		a, f := p.metadata().send(ctx, req)
		if f != nil || a.status != http.StatusOK || field(a.body, "access_token") == "" {
			return "", "", fail(stepAuthentication, remedy, "the delegate's machine has no account of Google Cloud: its metadata service does not answer for one")
		}
		p.report.ok(stepAuthentication, "Google Cloud gives the machine a token for its account")
		return field(a.body, "access_token"), "", nil
	}
	var account serviceAccount
	if json.Unmarshal([]byte(p.secret(secretKey)), &account) != nil || account.Email == "" {
		return "", "", fail("secrets", "store the whole JSON file that Google Cloud creates for a key", "the secret key is not the key file of a service account")
	}
	p.set.Add(account.PrivateKey)
	service, err := url.Parse(cmp.Or(account.TokenURI, "https://oauth2.googleapis.com/token"))
	if err != nil || service.Host == "" {
		return "", "", fail("secrets", "store the key file unchanged", "the key file has no valid token_uri")
	}
	assertion, ok := signAssertion(&account, service.String())
	if !ok {
		return "", "", fail("secrets", "store the key file unchanged", "the key file has no valid private key")
	}
	p.set.Add(assertion)
	a, f := p.post(ctx, service, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}})
	if f != nil {
		return "", "", f
	}
	about := subject{server: "the token service " + service.Host, credential: "the key of " + account.Email}
	if f := explainToken(a, about, "check that the key was not deleted and the account not disabled, and the clock of the delegate's machine"); f != nil {
		return "", "", f
	}
	p.report.ok(stepAuthentication, "Google Cloud accepts the key of %s", account.Email)
	return field(a.body, "access_token"), account.Project, nil
}

// explainToken explains the answer of a token service, which has the status 400 for wrong credentials.
func explainToken(a *answer, s subject, remedy string) *failure {
	switch {
	case a.status == http.StatusBadRequest || a.status == http.StatusUnauthorized:
		return fail(stepAuthentication, remedy, "%s rejects %s (%d)%s", s.server, s.credential, a.status, serverMessage(a))
	case a.status == http.StatusOK && field(a.body, "access_token") == "":
		return fail(stepAnswer, "check the address of the token service", "%s issues no token", s.server)
	}
	return explainStatus(a, s)
}

// signAssertion returns the signed claims by which Google issues a token.
func signAssertion(account *serviceAccount, audience string) (string, bool) {
	block, _ := pem.Decode([]byte(account.PrivateKey))
	if block == nil {
		return "", false
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return "", false
	}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", account.KeyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, options)
	if err != nil {
		return "", false
	}
	now := time.Now()
	text, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": account.Email, "aud": audience, "iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
		"scope": "https://www.googleapis.com/auth/cloud-platform.read-only",
	}).Serialize()
	return text, err == nil
}

// testAzure gets a token for a service principal, or for the identity of the machine, and lists the subscriptions.
func testAzure(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	token, credential, f := p.tokenOfAzure(ctx, u)
	if f != nil {
		return f
	}
	p.set.Add(token)
	a, f := p.get(ctx, with(at(u, "subscriptions"), "api-version", "2022-12-01"), bearer(token))
	if f != nil {
		return f
	}
	if f := explainStatus(a, subject{server: "Azure at " + u.Host, credential: credential, resource: "the list of subscriptions", right: "a role in a subscription"}); f != nil {
		return f
	}
	var list struct {
		Value []struct {
			Name string `json:"displayName"`
			ID   string `json:"subscriptionId"`
		} `json:"value"`
	}
	if json.Unmarshal(a.body, &list) != nil {
		return fail(stepAnswer, "check the address of the connector", "%s answers, but not as Azure", u.Host)
	}
	if len(list.Value) == 0 {
		return fail(stepPermission, "give the principal a role in a subscription, such as Reader", "%s sees no subscription", credential)
	}
	p.report.ok(stepPermission, "%s sees subscriptions (%d), the first is %s (%s)", credential, len(list.Value), list.Value[0].Name, list.Value[0].ID)
	return nil
}

func (p *probe) tokenOfAzure(ctx context.Context, u *url.URL) (token, credential string, f *failure) {
	scope := u.Scheme + "://" + u.Host
	if p.secret(secretPassword) == "" {
		const remedy = "set the secret password and the options tenant and client_id, or give the delegate's machine an identity"
		service, err := url.Parse(instanceService + "/metadata/identity/oauth2/token")
		if err != nil {
			return "", "", fail(stepAuthentication, remedy, "the address of the metadata service is not valid")
		}
		query := []string{"api-version", "2018-02-01", "resource", scope}
		if id := p.option(optionClient); id != "" {
			query = append(query, "client_id", id)
		}
		a, f := p.metadata().get(ctx, with(service, query...), func(r *http.Request) { r.Header.Set("Metadata", "true") })
		if f != nil || a.status != http.StatusOK || field(a.body, "access_token") == "" {
			return "", "", fail(stepAuthentication, remedy, "the delegate's machine has no identity of Azure: its metadata service does not answer for one")
		}
		p.report.ok(stepAuthentication, "Azure gives the machine a token for its identity")
		return field(a.body, "access_token"), "the identity of the machine", nil
	}
	if p.option(optionTenant) == "" || p.option(optionClient) == "" {
		return "", "", fail(stepAddress, "set the options tenant and client_id", "a service principal needs a tenant and a client id")
	}
	login, err := url.Parse(cmp.Or(p.option("login"), "https://login.microsoftonline.com"))
	if err != nil || login.Host == "" {
		return "", "", fail(stepAddress, "write it as https://HOST", "the option login is not a URL")
	}
	a, f := p.post(ctx, at(login, p.option(optionTenant), "oauth2", "v2.0", "token"), url.Values{
		"grant_type": {"client_credentials"}, "client_id": {p.option(optionClient)}, "client_secret": {p.secret(secretPassword)}, "scope": {scope + "/.default"},
	})
	if f != nil {
		return "", "", f
	}
	credential = "the principal " + p.option(optionClient)
	if f := explainToken(a, subject{server: "Entra ID at " + login.Host, credential: credential}, "check the options tenant and client_id, and that the secret has not expired"); f != nil {
		return "", "", f
	}
	p.report.ok(stepAuthentication, "Entra ID accepts %s", credential)
	return field(a.body, "access_token"), credential, nil
}
