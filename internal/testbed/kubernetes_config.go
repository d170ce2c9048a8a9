package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// kubernetesVersion is the version of the program in the directory kubernetes.
	kubernetesVersion = "v1.33.13"
	// networkPlugins is the plugins' directory on Debian.
	networkPlugins = "/usr/lib/cni"

	serviceNetwork = "10.96.0.0/16"
	serviceIP      = "10.96.0.1" // the API server's address for pods
	podNetwork     = "10.244.0.0/16"

	// enoughMemory is the normal eviction threshold of the node. tooMuchMemory is more than
	// any node with a running cluster has free.
	enoughMemory, tooMuchMemory = "100Mi", `"99.9%"`
)

// authority issues the cluster's certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	return a, a.issue("ca", pkix.Name{CommonName: "ca of a test"}, true)
}

// issue writes NAME.crt and NAME.key. names are the DNS names and addresses of a server.
func (a *authority) issue(name string, subject pkix.Name, ca bool, names ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, n)
		}
	}
	parent, signer := a.cert, a.key
	if ca {
		cert.IsCA, cert.KeyUsage, cert.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	if ca {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return err
		}
		a.key = key
	}
	plain, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.write(name+".key", "PRIVATE KEY", plain); err != nil {
		return err
	}
	return a.write(name+".crt", "CERTIFICATE", der)
}

// signing writes the key pair that signs the tokens of service accounts.
func (a *authority) signing() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	plain, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := a.write("accounts.key", "PRIVATE KEY", plain); err != nil {
		return err
	}
	return a.write("accounts.pub", "PUBLIC KEY", public)
}

func (a *authority) write(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// configure writes the files that the cluster's parts need to start.
func (c *Cluster) configure() error {
	host, node := c.keeper.network.host, c.keeper.network.node
	c.HostIP, c.Server = host, "https://"+net.JoinHostPort(node, "6443")
	for _, dir := range []string{"pki", "cni", "manifests", "registries"} {
		if err := os.Mkdir(filepath.Join(c.dir, dir), 0o755); err != nil {
			return err
		}
	}
	a, err := newAuthority(c.path("pki"))
	if err != nil {
		return err
	}
	system := func(name string, groups ...string) pkix.Name {
		return pkix.Name{CommonName: name, Organization: groups}
	}
	for name, subject := range map[string]pkix.Name{
		"admin":                   system("admin", "system:masters"),
		"kubelet-client":          system("kube-apiserver-kubelet-client", "system:masters"),
		"kube-controller-manager": system("system:kube-controller-manager"),
		"kube-scheduler":          system("system:kube-scheduler"),
		"kube-proxy":              system("system:kube-proxy"),
	} {
		if err := a.issue(name, subject, false); err != nil {
			return err
		}
	}
	if err := a.issue("kubelet", system("system:node:"+c.Node, "system:nodes"), false, c.Node, node, "127.0.0.1"); err != nil {
		return err
	}
	if err := a.issue("kube-apiserver", system("kube-apiserver"), false, "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "127.0.0.1", node, host, serviceIP); err != nil {
		return err
	}
	if err := a.signing(); err != nil {
		return err
	}
	// The API server identifies itself to extension servers with a certificate of a separate authority.
	if err := os.Mkdir(c.path("pki", "front"), 0o755); err != nil {
		return err
	}
	front, err := newAuthority(c.path("pki", "front"))
	if err != nil {
		return err
	}
	if err := front.issue("client", system("front-proxy-client"), false); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	c.tls = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}
	for _, user := range []string{"admin", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		if err := c.write(user+".kubeconfig", c.kubeconfig(user)); err != nil {
			return err
		}
	}
	c.Kubeconfig = c.path("admin.kubeconfig")
	for name, text := range c.configurations() {
		if err := c.write(name, text); err != nil {
			return err
		}
	}
	for name, args := range c.commands() {
		line := "exec"
		for _, arg := range args {
			line += " '" + arg + "'"
		}
		if err := c.write(filepath.Join("run", name), line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: %[3]s, user: {client-certificate: %[4]q, client-key: %[5]q}}]
contexts: [{name: test, context: {cluster: test, user: %[3]s}}]
current-context: test
`, c.Server, c.path("pki", "ca.crt"), user, c.path("pki", user+".crt"), c.path("pki", user+".key"))
}

// configurations returns the configuration files of the parts by their path in the cluster's
// directory.
func (c *Cluster) configurations() map[string]string {
	return map[string]string{
		"containerd.toml": `version = 2
root = "` + c.path("containerd", "root") + `"
state = "` + c.path("containerd", "state") + `"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "` + c.containerd() + `"
[plugins."io.containerd.internal.v1.opt"]
  path = "` + c.path("containerd", "opt") + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + clusterPause + `"
  restrict_oom_score_adj = true # no privilege to lower it is needed
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "` + networkPlugins + `"
    conf_dir = "` + c.path("cni") + `"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "` + c.path("registries") + `"
`,
		"cni/test.conflist": `{"cniVersion": "1.0.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam": {
    "type": "host-local", "dataDir": "` + c.path("addresses") + `",
    "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`,
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: ` + c.path("pki", "ca.crt") + `}}
authorization: {mode: AlwaysAllow}
tlsCertFile: ` + c.path("pki", "kubelet.crt") + `
tlsPrivateKeyFile: ` + c.path("pki", "kubelet.key") + `
containerRuntimeEndpoint: unix://` + c.containerd() + `
cgroupDriver: cgroupfs
cgroupRoot: /` + filepath.Base(c.dir) + `
staticPodPath: ` + c.path("manifests") + `
podLogsDir: ` + c.path("podlogs") + `
volumePluginDir: ` + c.path("plugins") + `
resolvConf: /run/resolv.conf
failSwapOn: false
oomScoreAdj: 0
maxPods: 100
registryPullQPS: 0
eventRecordQPS: 500
eventBurst: 1000
kubeAPIQPS: 500
kubeAPIBurst: 1000
nodeStatusUpdateFrequency: 5s
volumeStatsAggPeriod: 5s
evictionHard: {memory.available: ` + enoughMemory + `, nodefs.available: "1%", imagefs.available: "1%"}
evictionPressureTransitionPeriod: 1s
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`,
		"kube-proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: ` + podNetwork + `
hostnameOverride: ` + c.Node + `
clientConnection: {kubeconfig: ` + c.path("kube-proxy.kubeconfig") + `}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`,
	}
}

// commands returns the command that starts each part.
func (c *Cluster) commands() map[string][]string {
	pki := func(name string) string { return c.path("pki", name) }
	const etcd, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	part := func(name string, args ...string) []string { return append([]string{c.program, name}, args...) }
	return map[string][]string{
		"containerd": {"containerd", "--config", c.path("containerd.toml")},
		"etcd": part("etcd", "--data-dir="+c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn", // the data is discarded
			"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
			"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers),
		"kube-apiserver": part("kube-apiserver", "--etcd-servers="+etcd, "--cert-dir="+c.path("made"),
			"--advertise-address="+c.keeper.network.node, "--secure-port=6443", "--service-cluster-ip-range="+serviceNetwork,
			"--tls-cert-file="+pki("kube-apiserver.crt"), "--tls-private-key-file="+pki("kube-apiserver.key"), "--client-ca-file="+pki("ca.crt"),
			"--kubelet-client-certificate="+pki("kubelet-client.crt"), "--kubelet-client-key="+pki("kubelet-client.key"),
			"--kubelet-certificate-authority="+pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+pki("accounts.pub"),
			"--service-account-signing-key-file="+pki("accounts.key"),
			"--requestheader-client-ca-file="+pki("front/ca.crt"), "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file="+pki("front/client.crt"), "--proxy-client-key-file="+pki("front/client.key"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged"),
		"kube-controller-manager": part("kube-controller-manager", "--kubeconfig="+c.path("kube-controller-manager.kubeconfig"),
			"--leader-elect=false", "--use-service-account-credentials", "--horizontal-pod-autoscaler-sync-period=2s", "--kube-api-qps=500", "--kube-api-burst=1000",
			"--root-ca-file="+pki("ca.crt"), "--service-account-private-key-file="+pki("accounts.key"), "--cert-dir="+c.path("made"),
			"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"), "--flex-volume-plugin-dir="+c.path("plugins")),
		"kube-scheduler": part("kube-scheduler", "--kubeconfig="+c.path("kube-scheduler.kubeconfig"), "--leader-elect=false",
			"--cert-dir="+c.path("made")),
		"kube-proxy": part("kube-proxy", "--config="+c.path("kube-proxy.yaml")),
		"kubelet": part("kubelet", "--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.path("kubelet.kubeconfig"),
			"--root-dir="+c.path("kubelet"), "--cert-dir="+c.path("made"), "--hostname-override="+c.Node, "--node-ip="+c.keeper.network.node),
	}
}

// containerd returns the path of containerd's socket.
func (c *Cluster) containerd() string { return c.path("containerd.sock") }

func (c *Cluster) path(parts ...string) string {
	return strings.Join(append([]string{c.dir}, parts...), string(filepath.Separator))
}

func (c *Cluster) write(name, text string) error {
	return os.WriteFile(c.path(name), []byte(text), 0o600)
}
