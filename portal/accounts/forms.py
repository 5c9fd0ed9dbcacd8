"""Forms of organisations and their members. Actions check again; these only give the fields their words."""

from __future__ import annotations

from typing import Any

from django import forms

from tenants.access import Refused
from tenants.models import Role, Tenant

ROLE_WORDS = {
    Role.VIEWER: "Viewer: sees everything, changes nothing",
    Role.MEMBER: "Member: datasets, rewards, jobs, own API tokens",
    Role.ADMIN: "Admin: also members, all tokens, the audit log",
    Role.OWNER: "Owner: also ownership, two-factor rule, deletion",
}


class OrganisationForm(forms.Form):
    name = forms.CharField(max_length=100)
    require_mfa = forms.BooleanField(
        label="Members need two-factor authentication",
        required=False,
        help_text="Whoever has none sees nothing here, with API tokens neither, until it is set up. Owners decide it and need it first.",
    )

    def __init__(self, tenant: Tenant, role: str, data: Any = None):
        super().__init__(data, initial={"name": tenant.name, "require_mfa": tenant.require_mfa})
        if role != Role.OWNER:
            self.fields["require_mfa"].disabled = True


class NewForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="You become its owner. Nobody else sees what is in it until you invite them.")


class InviteForm(forms.Form):
    email = forms.EmailField(label="E-mail", max_length=254)
    role = forms.ChoiceField(choices=(), initial=Role.MEMBER)

    def __init__(self, roles: list[str], data: Any = None):
        super().__init__(data)
        self.fields["role"].choices = [(role, ROLE_WORDS[Role(role)]) for role in roles]


class DeleteForm(forms.Form):
    confirm = forms.CharField(label="Write its name to delete it", max_length=100)

    def __init__(self, data: Any = None):
        super().__init__(data)
        self.fields["confirm"].widget.attrs["autocomplete"] = "off"


def refused(form: forms.Form, error: Refused) -> forms.Form:
    """The action's refusal, beside the field that it names."""
    form.add_error(error.field if error.field in form.fields else None, f"{str(error)[:1].upper()}{str(error)[1:]}.")
    return form
