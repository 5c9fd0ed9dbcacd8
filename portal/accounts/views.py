"""The organisation: its name and rules, its members and invitations, leaving, export and deletion; and a person's sessions."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts import deletion, presence
from portal.accounts.forms import DeleteForm, InviteForm, NewForm, OrganisationForm, refused
from portal.accounts.respond import export_response
from portal.pages.access import changed_by, person_page, tenant_page
from portal.pages.templatetags.ui import mail_is_filed
from tenants import members as membership
from tenants.access import Refused, has_second_factor, rank
from tenants.actions import create_tenant
from tenants.forms import INVITED
from tenants.middleware import choose
from tenants.models import Invitation, Membership, Role

_shown_or_sent = require_http_methods(["GET", "HEAD", "POST"])


@never_cache
@_shown_or_sent
@tenant_page
@changed_by(Role.ADMIN)
def organisation(request: HttpRequest) -> HttpResponse:
    form = OrganisationForm(request.tenant, request.role, request.POST or None)
    if form.is_valid():
        given = form.cleaned_data
        asked = {"require_mfa": given["require_mfa"]} if request.role == Role.OWNER else {}
        try:
            membership.change_tenant(request.tenant, request.user, name=given["name"], **asked)
        except Refused as error:
            refused(form, error)
        else:
            messages.success(request, "Saved.")
            return redirect("accounts:organisation")
    context = {
        "form": form,
        "may_change": rank(request.role) >= rank(Role.ADMIN),
        "is_owner": request.role == Role.OWNER,
        "own_factor": has_second_factor(request.user),
    }
    return render(request, "accounts/organisation.html", context, status=422 if form.is_bound else 200)


@never_cache
@_shown_or_sent
@person_page
def new(request: HttpRequest) -> HttpResponse:
    form = NewForm(request.POST or None)
    if not form.is_valid():
        return render(request, "accounts/new.html", {"form": form}, status=422 if form.is_bound else 200)
    choose(request, create_tenant(request.user, form.cleaned_data["name"]))
    return redirect("home")


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def export(request: HttpRequest) -> HttpResponse:
    return export_response(request, request.tenant, request.user)


@require_POST
@person_page
def leave(request: HttpRequest) -> HttpResponse:
    """Also out of an organisation that is closed at the moment."""
    own = get_object_or_404(request.user.memberships.select_related("tenant"), tenant=request.tenant)
    try:
        membership.remove(own.tenant, request.user, own, timezone.now())
    except Refused as error:
        messages.error(request, f"You cannot leave: {error}.")
        return redirect("accounts:organisation")
    messages.success(request, f"You have left {own.tenant.name}.")
    return redirect("home")


@never_cache
@_shown_or_sent
@tenant_page
@changed_by(Role.OWNER)
def delete(request: HttpRequest) -> HttpResponse:
    form = DeleteForm(request.POST or None)
    if form.is_valid():
        try:
            deletion.check_meant(request.tenant, request.user, form.cleaned_data["confirm"])
            presence.prove(request)
            deletion.delete_tenant(request.tenant, request.user, form.cleaned_data["confirm"], timezone.now())
        except Refused as error:
            refused(form, error)
        else:
            messages.success(request, f"{request.tenant.name} is closed and being deleted.")
            return redirect("home")
    counts = {noun: getattr(request.tenant, noun).count() for noun in ("datasets", "rewards", "jobs", "memberships")}
    context = {"form": form, "counts": counts, "is_owner": request.role == Role.OWNER}
    return render(request, "accounts/delete.html", context, status=422 if form.is_bound else 200)


@never_cache
@_shown_or_sent
@tenant_page
@changed_by(Role.ADMIN)
def members(request: HttpRequest) -> HttpResponse:
    roles = [role for role in Role.values if rank(role) <= rank(request.role)]
    form = InviteForm(roles, request.POST or None)
    if form.is_valid():
        links: list[str] = []
        try:
            invited = membership.invite(
                request.tenant, request.user, now=timezone.now(), url_of=join_url(request, links), **form.cleaned_data
            )
        except Refused as error:
            refused(form, error)
        else:
            by_hand = f"{invited.email} is invited. This installation sends no mail, so hand this link over: {links[0] if links else ''}"
            messages.success(request, by_hand if mail_is_filed() else f"An invitation is on its way to {invited.email}.")
            return redirect("accounts:members")
    context = {
        "form": form,
        "roles": roles,
        "may_manage": rank(request.role) >= rank(Role.ADMIN),
        "is_owner": request.role == Role.OWNER,
        "people": _people(request),
        "invitations": request.tenant.invitations.filter(accepted_at=None, withdrawn_at=None).select_related("invited_by"),
        "now": timezone.now(),
    }
    return render(request, "accounts/members.html", context, status=422 if form.is_bound else 200)


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def role(request: HttpRequest, member_id: str) -> HttpResponse:
    def change(member: Membership) -> str:
        changed = membership.change_role(request.tenant, request.user, member, request.POST.get("role", ""))
        return f"{member.user.email} is {changed.role} now."

    return _with_member(request, member_id, change, otherwise="{0.user.email} keeps the role {0.role}")


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def remove(request: HttpRequest, member_id: str) -> HttpResponse:
    def end(member: Membership) -> str:
        membership.remove(request.tenant, request.user, member, timezone.now())
        return f"{member.user.email} is out. Tokens of theirs are revoked, and open pages closed."

    return _with_member(request, member_id, end, otherwise="{0.user.email} stays")


@require_POST
@tenant_page
@changed_by(Role.OWNER)
def transfer(request: HttpRequest, member_id: str) -> HttpResponse:
    def hand_over(member: Membership) -> str:
        presence.prove(request)
        membership.transfer(request.tenant, request.user, member)
        return f"{member.user.email} is the owner now, and you are an admin."

    return _with_member(request, member_id, hand_over, otherwise="Nothing was handed over")


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def withdraw(request: HttpRequest, invitation_id: str) -> HttpResponse:
    invited = get_object_or_404(request.tenant.invitations, public_id=invitation_id)
    if membership.withdraw(request.tenant, request.user, invited, timezone.now()):
        messages.success(request, f"The invitation of {invited.email} is withdrawn: its link opens nothing.")
    return redirect("accounts:members")


@never_cache
@_shown_or_sent
def join(request: HttpRequest, invitation_id: str, secret: str) -> HttpResponse:
    """Where an invitation's link leads, signed in or not. One that was used, withdrawn or made up says the same."""
    invited = membership.find_invitation(invitation_id, secret, timezone.now())
    if invited is None:
        return render(request, "accounts/join_gone.html", status=404)
    fits = request.user.is_authenticated and membership.owns_address(request.user, invited.email)
    if not request.user.is_authenticated:
        request.session[INVITED] = invited.email
    if request.method == "POST" and fits:
        try:
            choose(request, membership.accept(invited, request.user, timezone.now()).tenant)
        except Refused:
            return render(request, "accounts/join_gone.html", status=404)
        messages.success(request, f"You are {invited.role} of {invited.tenant.name} now.")
        return redirect("home")
    return render(request, "accounts/join.html", {"invited": invited, "fits": fits}, status=403 if request.method == "POST" else 200)


@require_POST
@person_page
def end_session(request: HttpRequest, session: int) -> HttpResponse:
    """One of a person's own: the browser that has it is signed out, and its open pages close at once."""
    get_object_or_404(request.user.usersession_set, pk=session).end()
    messages.success(request, "That session has ended.")
    return redirect("usersessions_list")


def join_url(request: HttpRequest, made: list[str]) -> Callable[[Invitation, str], str]:
    """The address of an invitation's link on this site; it is added to ``made``."""

    def url_of(invited: Invitation, secret: str) -> str:
        made.append(request.build_absolute_uri(reverse("accounts:join", args=[invited.public_id, secret])))
        return made[-1]

    return url_of


def _with_member(request: HttpRequest, member_id: str, act: Callable[[Membership], str], *, otherwise: str) -> HttpResponse:
    """Back on the members' page with what ``act`` says it did, or with ``otherwise``, a format of the member, and the reason for it."""
    member = get_object_or_404(request.tenant.memberships.select_related("user"), public_id=member_id)
    try:
        messages.success(request, act(member))
    except Refused as error:
        messages.error(request, f"{otherwise.format(member)}: {error}.")
    return redirect("accounts:members")


def _people(request: HttpRequest) -> list[dict]:
    found = request.tenant.memberships.select_related("user").prefetch_related("user__authenticator_set").order_by("id")
    return [
        {
            "member": member,
            "me": member.user_id == request.user.pk,
            "factor": any(a.type != "recovery_codes" for a in member.user.authenticator_set.all()),
            "touchable": rank(member.role) <= rank(request.role),
        }
        for member in found
    ]
