package connector

import (
	"context"
	"net/http"
)

// testHTTP sends one request to a web service.
func testHTTP(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	user, password, credential := p.login()
	a, f := p.get(ctx, u, func(r *http.Request) {
		switch {
		case p.secret(secretToken) != "" && user == "":
			r.Header.Set("Authorization", "Bearer "+password)
		case credential != "":
			r.SetBasicAuth(user, password)
		}
	})
	if f != nil {
		return f
	}
	if f := explainStatus(a, subject{server: u.Host, credential: credential, needs: "token, or username and password"}); f != nil {
		return f
	}
	p.report.ok(stepAnswer, "%s answers %d", u.Host, a.status)
	if credential != "" {
		p.report.ok(stepAuthentication, "%s accepts %s", u.Host, credential)
	}
	return nil
}
