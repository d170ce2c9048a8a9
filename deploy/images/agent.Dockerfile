# The agent, which each stage's pod takes from here, and the CAs that steps for caches and uploads trust.
# "make images" builds it.
FROM scratch
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY agent /agent
ENTRYPOINT ["/agent"]
