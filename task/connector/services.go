package connector

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// testKubernetes asks a cluster for its version, and what the credentials may do.
func testKubernetes(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	var prepare func(*http.Request)
	credential := ""
	switch {
	case p.secret(secretToken) != "":
		prepare, credential = bearer(p.secret(secretToken)), "the token"
	case p.secret(secretClientCert) != "":
		credential = "the client certificate"
	}
	about := subject{server: "the cluster " + u.Host, credential: credential, needs: "token, or client_cert and client_key"}
	a, f := p.get(ctx, at(u, "version"), prepare)
	if f != nil {
		return f
	}
	if f := explainStatus(a, about); f != nil {
		return f
	}
	version := field(a.body, "gitVersion")
	if version == "" {
		return fail(stepAnswer, "check the address of the connector", "%s answers, but not as Kubernetes", u.Host)
	}
	p.report.ok(stepAnswer, "%s runs Kubernetes %s", u.Host, version)
	verb := "get"
	if p.write() {
		verb = "create"
	}
	namespace, resource := cmp.Or(p.option(optionNamespace), "default"), cmp.Or(p.option(optionResource), "pods")
	about.resource, about.right = verb+" "+resource+" in the namespace "+namespace, "a role that permits it (kubectl auth can-i "+verb+" "+resource+" -n "+namespace+")"
	a, f = p.postJSON(ctx, at(u, "apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"), map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"namespace": namespace, "verb": verb, "resource": resource}},
	}, prepare)
	if f != nil {
		return f
	}
	if credential == "" && a.status == http.StatusForbidden {
		a.status = http.StatusUnauthorized
	}
	if f := explainStatus(a, about); f != nil {
		return f
	}
	if credential != "" {
		p.report.ok(stepAuthentication, "the cluster accepts %s", credential)
	}
	if allowed, _ := flag(a.body, "status", "allowed"); !allowed {
		return fail(stepPermission, "give it "+about.right, "the cluster does not permit %s to %s", credential, about.resource)
	}
	p.report.ok(stepPermission, "the delegate may %s", about.resource)
	return nil
}

// testVault asks a Vault for its state, the token and what it may do.
func testVault(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	about := subject{server: "Vault at " + u.Host, credential: "the token", right: "a policy that permits it"}
	a, f := p.get(ctx, with(at(u, "v1", "sys", "health"), "standbyok", "true", "perfstandbyok", "true"), nil)
	if f != nil {
		return f
	}
	if sealed, known := flag(a.body, "sealed"); known && sealed {
		return fail(stepAnswer, "unseal it", "Vault at %s is sealed", u.Host)
	}
	if ready, known := flag(a.body, "initialized"); !known || !ready {
		if f := explainStatus(a, about); f != nil && f.step != stepPermission {
			return f
		}
		return fail(stepAnswer, "check the address of the connector, and initialise the Vault", "%s answers, but not as a Vault that is ready", u.Host)
	}
	p.report.ok(stepAnswer, "%s is a Vault, version %s, and unsealed", u.Host, field(a.body, "version"))
	token := p.secret(secretToken)
	space := func(r *http.Request) {
		if ns := p.option(optionNamespace); ns != "" {
			r.Header.Set("X-Vault-Namespace", ns)
		}
	}
	if token == "" {
		if p.secret(secretUsername) == "" || p.secret(secretPassword) == "" {
			return fail(stepAddress, "set the secret token, or username and password to the role id and the secret id of an AppRole", "a connector to Vault needs credentials")
		}
		a, f = p.postJSON(ctx, at(u, "v1", "auth", "approle", "login"), map[string]string{"role_id": p.secret(secretUsername), "secret_id": p.secret(secretPassword)}, space)
		if f != nil {
			return f
		}
		if token = field(a.body, "auth", "client_token"); token == "" {
			about.credential = "the AppRole"
			switch a.status {
			case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound:
				return fail(stepAuthentication, "check the role id (username) and the secret id (password), and that AppRole is enabled at auth/approle",
					"Vault at %s rejects the AppRole (%d)%s", u.Host, a.status, serverMessage(a))
			}
			if f := explainStatus(a, about); f != nil {
				return f
			}
			return fail(stepAnswer, "check the AppRole", "Vault at %s issues no token", u.Host)
		}
		p.set.Add(token)
	}
	prepare := func(r *http.Request) {
		space(r)
		r.Header.Set("X-Vault-Token", token)
	}
	if a, f = p.get(ctx, at(u, "v1", "auth", "token", "lookup-self"), prepare); f != nil {
		return f
	}
	if a.status == http.StatusForbidden { // also for a token that is not valid
		return fail(stepAuthentication, "check that the token has not expired, and the option namespace", "Vault at %s rejects the token (403)%s", u.Host, serverMessage(a))
	}
	if f := explainStatus(a, about); f != nil {
		return f
	}
	var self struct {
		Data struct {
			Policies []string `json:"policies"`
			TTL      int64    `json:"ttl"`
		} `json:"data"`
	}
	_ = json.Unmarshal(a.body, &self)
	p.report.ok(stepAuthentication, "Vault accepts the credentials; they have the policies %s", strings.Join(self.Data.Policies, ", "))
	path := p.option(optionPath)
	if path == "" {
		return nil
	}
	if a, f = p.postJSON(ctx, at(u, "v1", "sys", "capabilities-self"), map[string]any{"paths": []string{path}}, prepare); f != nil {
		return f
	}
	if f := explainStatus(a, about); f != nil {
		return f
	}
	var can struct {
		Capabilities []string `json:"capabilities"`
	}
	_ = json.Unmarshal(a.body, &can)
	need := "read"
	if p.write() {
		need = "update"
	}
	if !slices.Contains(can.Capabilities, need) && !slices.Contains(can.Capabilities, "root") {
		return fail(stepPermission, "add the capability to a policy of the token; in a KV store of version 2 the path has /data/ after the mount",
			"the policies of the token do not permit %s at %s", need, path)
	}
	p.report.ok(stepPermission, "the token may %s %s", need, path)
	return nil
}

// testS3 lists a bucket, and writes and removes an object if the connector needs to write.
func testS3(ctx context.Context, p *probe) *failure {
	p.c.Address = cmp.Or(p.c.Address, "https://s3."+p.region()+".amazonaws.com")
	u, f := p.base()
	if f != nil {
		return f
	}
	bucket := p.option(optionBucket)
	if bucket == "" {
		return fail(stepAddress, "set it to the name of a bucket", "connectors of the kind s3 need the option bucket")
	}
	if p.option(optionPathStyle) == "false" {
		u.Host = bucket + "." + u.Host
	} else {
		u = at(u, bucket)
	}
	creds, credential, f := p.awsCredentials(ctx)
	if f != nil {
		return f
	}
	about := subject{server: "the storage " + u.Host, credential: credential, resource: "the bucket " + bucket, right: "the permission s3:ListBucket"}
	prefix := p.option(optionPrefix)
	a, f := p.sendAWS(ctx, creds, awsCall{method: http.MethodGet, service: "s3", region: p.region(), url: with(u, "list-type", "2", "max-keys", "1", "prefix", prefix)})
	if f != nil {
		return f
	}
	if f := explainS3(a, about); f != nil {
		return f
	}
	if !strings.Contains(string(a.body), "ListBucketResult") {
		return fail(stepAnswer, "check the address of the connector", "%s answers, but not as S3", u.Host)
	}
	p.report.ok(stepAuthentication, "the storage accepts %s", credential)
	p.report.ok(stepPermission, "the delegate may list the bucket %s", bucket)
	if !p.write() {
		return nil
	}
	object := at(u, strings.TrimSuffix(prefix, "/"), "dlite-connector-test-"+rand.Text())
	about.right = "the permission s3:PutObject"
	a, f = p.sendAWS(ctx, creds, awsCall{method: http.MethodPut, service: "s3", region: p.region(), url: object, body: []byte("This object tests a connector. It may be removed.\n")})
	if f != nil {
		return f
	}
	if f := explainS3(a, about); f != nil {
		return f
	}
	a, f = p.sendAWS(ctx, creds, awsCall{method: http.MethodDelete, service: "s3", region: p.region(), url: object})
	if f == nil && explainStatus(a, about) == nil {
		p.report.ok(stepPermission, "the delegate may write and remove objects in the bucket %s", bucket)
		return nil
	}
	p.report.advise(stepPermission, "remove the object by hand, or permit s3:DeleteObject", "the delegate may write objects in the bucket %s but not remove them; the test leaves %s", bucket, object.Path)
	return nil
}

// explainS3 explains an error of S3.
func explainS3(a *answer, s subject) *failure {
	switch code := between(string(a.body), "<Code>", "</Code>"); code {
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		region := between(string(a.body), "<Region>", "</Region>")
		if region == "" {
			region = a.header.Get("X-Amz-Bucket-Region")
		}
		return fail(stepAnswer, "set the option region, and the address, to those of the bucket", "%s is in another region (%s)", s.resource, cmp.Or(region, code))
	case "XMinioStorageFull", "QuotaExceeded":
		a.status = http.StatusInsufficientStorage
	}
	return explainAWS(a, s)
}
