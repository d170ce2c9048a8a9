package connector

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// instanceService is the metadata service of EC2, GCP and Azure.
const instanceService = "http://169.254.169.254"

// awsCall is a signed request.
type awsCall struct {
	method, service, region string
	url                     *url.URL
	header                  map[string]string
	body                    []byte
}

// sendAWS signs and sends a request.
func (p *probe) sendAWS(ctx context.Context, creds aws.Credentials, c awsCall) (*answer, *failure) {
	req, err := http.NewRequestWithContext(ctx, c.method, c.url.String(), bytes.NewReader(c.body))
	if err != nil {
		return nil, fail(stepAddress, "correct the address of the connector", "the address is not a URL")
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	sum := sha256.Sum256(c.body)
	hash := hex.EncodeToString(sum[:])
	if c.service == "s3" {
		req.Header.Set("X-Amz-Content-Sha256", hash)
	}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = c.service == "s3" }).SignHTTP(ctx, creds, req, hash, c.service, c.region, time.Now())
	if err != nil {
		return nil, fail(stepAuthentication, "check the secrets access_key and secret_key", "the request cannot be signed")
	}
	p.set.Add(req.Header.Get("X-Amz-Security-Token"))
	return p.send(ctx, req)
}

// awsCredentials returns the credentials of the secrets, or those of the machine's role.
func (p *probe) awsCredentials(ctx context.Context) (aws.Credentials, string, *failure) {
	access, secret := p.secret(secretAccessKey), p.secret(secretSecretKey)
	switch {
	case access != "" && secret != "":
		return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret, SessionToken: p.secret(secretSessionToken)}, "the access key", nil
	case access != "" || secret != "":
		return aws.Credentials{}, "", fail(stepAddress, "set both secrets, or none for the role of the delegate's machine", "the connector has only one of access_key and secret_key")
	}
	creds, f := p.instanceRole(ctx)
	return creds, "the role of the machine", f
}

// instanceRole asks the metadata service of EC2, in its second version.
func (p *probe) instanceRole(ctx context.Context) (aws.Credentials, *failure) {
	const remedy = "set the secrets access_key and secret_key, or give the delegate's machine a role"
	m := p.metadata()
	get := func(method, path, header, value string) (string, *failure) {
		req, err := http.NewRequestWithContext(ctx, method, instanceService+path, http.NoBody)
		if err != nil {
			return "", fail(stepAuthentication, remedy, "the address of the metadata service is not valid")
		}
		req.Header.Set(header, value)
		a, f := m.send(ctx, req)
		if f != nil || a.status != http.StatusOK {
			return "", fail(stepAuthentication, remedy, "the delegate's machine has no role of AWS: its metadata service does not answer for one")
		}
		return string(a.body), nil
	}
	token, f := get(http.MethodPut, "/latest/api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
	if f != nil {
		return aws.Credentials{}, f
	}
	p.set.Add(token)
	const path = "/latest/meta-data/iam/security-credentials/"
	role, f := get(http.MethodGet, path, "X-Aws-Ec2-Metadata-Token", token)
	if f != nil {
		return aws.Credentials{}, f
	}
	role, _, _ = strings.Cut(strings.TrimSpace(role), "\n")
	text, f := get(http.MethodGet, path+url.PathEscape(role), "X-Aws-Ec2-Metadata-Token", token)
	if f != nil {
		return aws.Credentials{}, f
	}
	var got struct{ AccessKeyId, secretAccessKey, Token string }
	if json.Unmarshal([]byte(text), &got) != nil || got.AccessKeyId == "" {
		return aws.Credentials{}, fail(stepAuthentication, remedy, "the metadata service gives no credentials for the role %s", role)
	}
	p.set.Add(got.secretAccessKey, got.Token)
	return aws.Credentials{AccessKeyID: got.AccessKeyId, SecretAccessKey: got.secretAccessKey, SessionToken: got.Token}, nil
}

// region returns the region of the connector.
func (p *probe) region() string { return cmp.Or(p.option(optionRegion), "us-east-1") }

// testAWS asks STS for the identity of the credentials, and assumes a role if the connector names one.
func testAWS(ctx context.Context, p *probe) *failure {
	p.c.Address = cmp.Or(p.c.Address, "https://sts."+p.region()+".amazonaws.com")
	u, f := p.base()
	if f != nil {
		return f
	}
	creds, credential, f := p.awsCredentials(ctx)
	if f != nil {
		return f
	}
	call := func(query ...string) (*answer, *failure) {
		form := with(u, append([]string{"Version", "2011-06-15"}, query...)...).RawQuery
		return p.sendAWS(ctx, creds, awsCall{
			method: http.MethodPost, service: "sts", region: p.region(), url: at(u, ""), body: []byte(form),
			header: map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/xml"},
		})
	}
	a, f := call("Action", "GetCallerIdentity")
	if f != nil {
		return f
	}
	about := subject{server: "AWS at " + u.Host, credential: credential, right: "the permission sts:GetCallerIdentity"}
	if f := explainAWS(a, about); f != nil {
		return f
	}
	arn := between(string(a.body), "<Arn>", "</Arn>")
	if arn == "" {
		return fail(stepAnswer, "check the address of the connector", "%s answers, but not as STS", u.Host)
	}
	p.report.ok(stepAuthentication, "AWS accepts %s; it is %s", credential, arn)
	role := p.option(optionAssumeRole)
	if role == "" {
		return nil
	}
	query := []string{"Action", "AssumeRole", "RoleArn", role, "RoleSessionName", "dlite-connector-test", "DurationSeconds", "900"}
	if id := p.option(optionExternalID); id != "" {
		query = append(query, "ExternalId", id)
	}
	if a, f = call(query...); f != nil {
		return f
	}
	about.resource, about.right = "the role "+role, "sts:AssumeRole for the role, and the trust policy of the role this identity and external_id"
	if f := explainAWS(a, about); f != nil {
		return f
	}
	p.report.ok(stepPermission, "%s may be assumed", role)
	return nil
}

// explainAWS explains an error of AWS: it answers 403 and 400 for wrong credentials.
func explainAWS(a *answer, s subject) *failure {
	code := cmp.Or(between(string(a.body), "<Code>", "</Code>"), strings.TrimPrefix(field(a.body, "__type"), "com.amazon.coral.service#"))
	switch code {
	case "InvalidClientTokenId", "InvalidAccessKeyId", "UnrecognizedClientException", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "InvalidSignatureException", "IncompleteSignature":
		remedy := map[string]string{
			"SignatureDoesNotMatch": "check the secret secret_key, and the clock of the delegate's machine",
			"ExpiredToken":          "renew the session token",
			"ExpiredTokenException": "renew the session token",
		}[code]
		return fail(stepAuthentication, cmp.Or(remedy, "check the secrets access_key and secret_key, and that the key is active"), "%s rejects %s (%s)", s.server, s.credential, code)
	case "RequestTimeTooSkewed", "RequestExpired":
		return fail(stepAuthentication, "set the clock of the delegate's machine", "%s rejects the time of the delegate's machine (%s)", s.server, code)
	case "Throttling", "ThrottlingException", "RequestLimitExceeded", "SlowDown":
		return fail(stepAnswer, "wait, and let fewer programs use the same account", "%s limits the number of requests (%s)", s.server, code)
	case "AccessDenied", "AccessDeniedException":
		a.status = http.StatusForbidden
	}
	return explainStatus(a, s)
}

// testECR gets a password from the API of ECR and uses it in the registry.
func testECR(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	region := p.option(optionRegion)
	if parts := strings.Split(u.Hostname(), "."); region == "" && len(parts) > 4 && parts[1] == "dkr" {
		region = parts[3]
	}
	if region == "" {
		return fail(stepAddress, "set the option region", "the address names no region")
	}
	creds, credential, f := p.awsCredentials(ctx)
	if f != nil {
		return f
	}
	api, err := url.Parse(cmp.Or(p.option("api"), "https://api.ecr."+region+".amazonaws.com"))
	if err != nil || api.Host == "" {
		return fail(stepAddress, "write it as https://HOST", "the option api is not a URL")
	}
	a, f := p.sendAWS(ctx, creds, awsCall{
		method: http.MethodPost, service: "ecr", region: region, url: at(api, ""), body: []byte("{}"),
		header: map[string]string{"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"},
	})
	if f != nil {
		return f
	}
	if f := explainAWS(a, subject{server: "ECR at " + api.Host, credential: credential, resource: "a token of the registry", right: "the permission ecr:GetAuthorizationToken"}); f != nil {
		return f
	}
	var got struct {
		Data []struct {
			Token string `json:"authorizationToken"`
		} `json:"authorizationData"`
	}
	var user, password string
	if json.Unmarshal(a.body, &got) == nil && len(got.Data) > 0 {
		if plain, err := base64.StdEncoding.DecodeString(got.Data[0].Token); err == nil {
			user, password, _ = strings.Cut(string(plain), ":")
		}
	}
	if password == "" {
		return fail(stepAnswer, "check the option api", "%s answers, but not as ECR", api.Host)
	}
	p.set.Add(password)
	p.report.ok(stepAuthentication, "ECR accepts %s and issues a password for the registry", credential)
	return p.registry(ctx, user, password, "the password of ECR")
}

// metadata returns a probe that may call the metadata service, without the proxy. It reports nothing.
func (p *probe) metadata() *probe {
	own := &probe{c: p.c, set: p.set, report: newReport(p.set), transport: p.transport.Clone(), wait: p.wait}
	own.transport.Proxy = nil
	own.dialer = &dialer{report: own.report, resolver: p.dialer.resolver, metadata: true, timeout: min(p.dialer.timeout, 2*time.Second), phase: own.enter}
	own.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return own.dialer.dial(ctx, network, address, false)
	}
	own.transport.DisableKeepAlives = true
	return own
}
